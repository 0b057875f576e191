// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief AdamW whose step number, learning rate, clipping and verdict lie in the device's memory, for many
/// parameters in one launch.

#include <shardwright/tensor/kernels/adamw.hpp>
#include <shardwright/tensor/kernels/parts.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief What changes from step to step, in the memory of the kernels.
struct AdamWDeviceStep {
  double learning_rate = 0;
  std::int64_t step = 0; ///< Updates so far.
  std::int32_t take = 0; ///< Whether the update changes anything.
  // As AdamWUpdate wants them, but for what differs between parameters.
  double scale = 0;
  double bias = 0; ///< 1 - beta1^step.
  double spread = 0;
};

namespace detail {

/// Opens the next step, or leaves everything as it is: the constants of adamw_update on the host, operation
/// for operation.
struct OpenAdamWStep {
  AdamWDeviceStep* to;
  double beta1;
  double beta2;

  SHARDWRIGHT_FUNCTION void open(bool take, double gradient_scale) const {
    to->take = take ? 1 : 0;
    if (!take)
      return;
    const double t = static_cast<double>(++to->step);
    to->scale = gradient_scale;
    to->bias = 1.0 - std::pow(beta1, t);
    to->spread = 1.0 / std::sqrt(1.0 - std::pow(beta2, t));
  }
};

/// `Rounded` is the element of a copy that is stored too; `Element` says that there is none.
template <class Element, class Rounded>
struct AdamWUpdateOnDevice {
  static constexpr bool rounds = !std::is_same_v<Element, Rounded>;
  AdamWUpdate<Element> update;
  const AdamWDeviceStep* step;
  Rounded* rounded;
  double rate_factor; ///< Of the learning rate, for this parameter.
  double weight_decay;

  template <class Chunk>
  SHARDWRIGHT_FUNCTION void operator()(Chunk chunk, std::size_t i) const {
    if (step->take == 0)
      return;
    AdamWUpdate<Element> now = update;
    now.scale = static_cast<Element>(step->scale);
    const double rate = step->learning_rate * rate_factor;
    now.rate = static_cast<Element>(rate / step->bias);
    now.spread = static_cast<Element>(step->spread);
    now.decay = static_cast<Element>(1.0 - rate * weight_decay);
    const Lanes<Element> parameter = now(chunk, i);
    if constexpr (rounds)
      chunk.store(rounded + i, parameter);
  }
  template <class Use>
  SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const {
    if constexpr (rounds)
      update.with_memory([&](const auto*... memory) { use(memory..., rounded); });
    else
      update.with_memory(use);
  }
};

} // namespace detail

/// @brief The update of adamw_update with what varies read from the device's memory, for as many parameters
/// at a time as a launch takes; nothing where the step is not taken.
///
/// Cost: that of adamw_update, and one write where there is a rounded copy.
template <class Execution, class Element, class Rounded = Element>
class AdamWLaunches {
public:
  explicit AdamWLaunches(const Execution& execution) : launcher_("sw::adamw", execution) {}

  /// @brief Adds a parameter, whose memory must stay until the launch.
  /// @param rounded where the updated parameter goes once more, rounded; null where `Rounded` is `Element`
  /// @param constants beta1, beta2, epsilon, weight decay, and as learning rate the factor on that of the step
  template <KernelView Parameter, KernelView Gradient, KernelView Moment>
  void add(const Parameter& parameter, Rounded* rounded, const Gradient& gradient, const Moment& first_moment,
           const Moment& second_moment, const AdamWStep& constants, const AdamWDeviceStep* step) {
    const std::size_t grain = detail::lane_grain_of<Execution>(4096);
    launcher_.add({{detail::adamw_of(parameter, gradient, first_moment, second_moment, constants), step,
                    rounded, constants.learning_rate, constants.weight_decay},
                   parameter.size(),
                   grain},
                  detail::blocks_of(parameter.size(), grain));
  }
  /// @brief Launches the updates that were added.
  void launch() { launcher_.launch(); }

private:
  detail::PartLauncher<Execution, detail::Elementwise<Element, detail::AdamWUpdateOnDevice<Element, Rounded>>>
      launcher_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
