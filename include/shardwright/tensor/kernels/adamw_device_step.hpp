// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief AdamW whose step number, learning rate, clipping and verdict lie in the device's memory.

#include <shardwright/tensor/kernels/adamw.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief What changes from step to step, in the memory of the kernels.
struct AdamWDeviceStep {
  double learning_rate = 0;
  std::int64_t step = 0; ///< Updates so far.
  std::int32_t take = 0; ///< Whether the update changes anything.
  // As AdamWUpdate wants them.
  double scale = 0;
  double rate = 0;
  double spread = 0;
  double decay = 0; ///< Of parameters that decay.
};

namespace detail {

/// Opens the next step, or leaves everything as it is: the constants of adamw_update on the host, operation
/// for operation.
struct OpenAdamWStep {
  AdamWDeviceStep* to;
  double beta1;
  double beta2;
  double weight_decay;

  SHARDWRIGHT_FUNCTION void open(bool take, double gradient_scale) const {
    to->take = take ? 1 : 0;
    if (!take)
      return;
    const double t = static_cast<double>(++to->step);
    to->scale = gradient_scale;
    to->rate = to->learning_rate / (1.0 - std::pow(beta1, t));
    to->spread = 1.0 / std::sqrt(1.0 - std::pow(beta2, t));
    to->decay = 1.0 - to->learning_rate * weight_decay;
  }
};

template <class Element>
struct AdamWUpdateOnDevice {
  AdamWUpdate<Element> update;
  const AdamWDeviceStep* step;
  bool decays;

  template <class Chunk>
  SHARDWRIGHT_FUNCTION void operator()(Chunk chunk, std::size_t i) const {
    if (step->take == 0)
      return;
    AdamWUpdate<Element> now = update;
    now.scale = static_cast<Element>(step->scale);
    now.rate = static_cast<Element>(step->rate);
    now.spread = static_cast<Element>(step->spread);
    now.decay = static_cast<Element>(decays ? step->decay : 1.0);
    now(chunk, i);
  }
  template <class Use>
  SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const {
    update.with_memory(use);
  }
};

} // namespace detail

/// @brief The update of adamw_update with what varies read from `step`; nothing where that is not taken.
/// @param constants beta1, beta2 and epsilon; no weight decay where that is 0
template <class Execution, KernelView Parameter, KernelView Gradient, KernelView Moment>
void adamw_update(const Execution& execution, const Parameter& parameter, const Gradient& gradient,
                  const Moment& first_moment, const Moment& second_moment, const AdamWStep& constants,
                  const AdamWDeviceStep* step) {
  using Element = typename Parameter::value_type;
  const auto update = detail::adamw_of(parameter, gradient, first_moment, second_moment, constants);
  detail::run_elementwise<Element>(
      "sw::adamw", execution, parameter.size(),
      detail::AdamWUpdateOnDevice<Element>{update, step, constants.weight_decay != 0});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
