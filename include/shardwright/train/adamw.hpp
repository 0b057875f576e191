// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief AdamW over a model's parameters, with clipping by the global norm fused into the update.

#include <shardwright/core/error.hpp>
#include <shardwright/tensor/device_value.hpp>
#include <shardwright/tensor/kernels/adamw.hpp>
#include <shardwright/tensor/kernels/adamw_device_step.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/step_record.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Factor that brings a gradient of `norm` down to `max_norm`: max_norm / (norm + 1e-6) where that is
/// below 1. A `max_norm` of 0 does not clip.
[[nodiscard]] SHARDWRIGHT_FUNCTION inline double clip_coefficient(double norm, double max_norm) {
  const double coefficient = max_norm / (norm + 1e-6);
  return max_norm > 0 && coefficient < 1.0 ? coefficient : 1.0;
}

/// @brief Constants of AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2).
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1; ///< On matrices; vectors such as norm gains do not decay.
  double max_norm = 1.0;     ///< Clip the gradient to this global norm; 0: do not.
};

namespace detail {

/// Opens an AdamW step from a finished one, clipped.
struct OpenClippedStep {
  kernels::detail::OpenAdamWStep open;
  const StepRecord* record;
  double max_norm;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    open.open(record->take != 0, record->scale * clip_coefficient(record->gradient_norm, max_norm));
  }
};

/// The step of a device: what the host knows of it, and where the rest lies.
struct AdamWOnDevice {
  kernels::AdamWStep constants;
  const kernels::AdamWDeviceStep* step;
};

} // namespace detail

/// @brief AdamW with decoupled weight decay; its moments lie in the parameters.
///
/// On a device the learning rate, the number of steps and the clipping are in its memory, where the kernels
/// read them: the host waits for nothing, a captured step stays valid when the rate changes, and a step that
/// is not finite, or that a StepGuard holds back, changes nothing.
class AdamW {
public:
  explicit AdamW(AdamWOptions options = {}) : options_(options) {}

  /// @brief Updates every parameter of the model from its finished gradient. Collective where parameters are
  /// stored otherwise than their optimizer state (ZeRO-1, ZeRO-2): the updated blocks are gathered.
  template <ParameterSet Model>
  void step(Model& model, const GradientSummary& summary, double learning_rate) {
    const kernels::AdamWStep constants = begin(
        summary.scale.clipped(clip_coefficient(summary.gradient_norm, options_.max_norm)), learning_rate);
    model.for_each_parameter([&](auto& parameter) { update(parameter, parameter.gradient(), constants); });
  }

  /// @brief The same on a device.
  template <ParameterSet Model, class Target>
  void step(Model& model, const DeviceSummary<Target>& summary, double learning_rate) {
    set_learning_rate(summary.resources(), learning_rate);
    step(model, summary);
  }
  /// @brief The same at the rate of set_learning_rate; everything in it may be captured.
  template <ParameterSet Model, class Target>
  void step(Model& model, const DeviceSummary<Target>& summary) {
    const detail::AdamWOnDevice constants = begin(summary);
    model.for_each_parameter([&](auto& parameter) { update(parameter, parameter.gradient(), constants); });
  }
  /// @brief The rate of the next step on a device, in the order of its stream.
  template <class Target, class Mesh>
  void set_learning_rate(const Mesh& mesh, double learning_rate) {
    set_learning_rate(mesh.core().template resources<Target>(), learning_rate);
  }
  /// @brief The same with the pool and instance of a tensor.
  template <class Target>
  void set_learning_rate(detail::TargetResources<Target>& resources, double learning_rate) {
    if (!device_step_) {
      device_step_ = detail::BufferHandle(resources.take(sizeof(kernels::AdamWDeviceStep)));
      detail::run_once("sw::adamw_start", resources.execution(),
                       detail::StoreKernel<kernels::AdamWDeviceStep>{device_step(), {}});
    }
    detail::run_once("sw::adamw_rate", resources.execution(),
                     detail::StoreKernel<double>{&device_step()->learning_rate, learning_rate});
  }

  /// @brief Updates one parameter; its gradient must be finished: in the layout of the optimizer state.
  /// @param constants from begin()
  template <class P, AnyShardedTensor G, class Constants>
  void update(P& parameter, const G& gradient, Constants constants) const {
    using L = typename std::remove_cvref_t<G>::layout;
    constexpr bool finished = !L::value.has_partial();
    constexpr bool fits = std::is_same_v<L, typename P::state_layout>;
    static_assert(
        finished,
        "AdamW: the gradient must not be Partial, an unfinished sum (finish() the GradAccumulator, or"
        " redistribute it to the parameter's gradient_layout)");
    static_assert(!finished || fits,
                  "AdamW: the optimizer state must lie where the gradient does (redistribute the gradient to"
                  " the parameter's gradient_layout, or choose the Zero type that shards both alike)");
    if constexpr (finished && fits) {
      if (!P::decays())
        host_part(constants).weight_decay = 0;
      if (!parameter.state())
        parameter.make_state();
      auto& state = *parameter.state();
      parameter.update_weights([&](auto& weights) {
        const auto run = [&](const auto&... values) {
          kernels::adamw_update(weights.execution(), weights.mutable_local_matrix(), gradient.local_matrix(),
                                state.first_moment.mutable_local_matrix(),
                                state.second_moment.mutable_local_matrix(), values...);
        };
        if constexpr (std::is_same_v<Constants, detail::AdamWOnDevice>)
          run(constants.constants, constants.step);
        else
          run(constants);
      });
    }
  }

  /// @brief Opens the next step: the constants for update().
  [[nodiscard]] kernels::AdamWStep begin(GradientScale gradient_scale, double learning_rate) {
    return {learning_rate,         options_.beta1, options_.beta2,         options_.epsilon,
            options_.weight_decay, ++steps_,       gradient_scale.factor()};
  }

  /// @brief The same from a step on a device.
  template <class Target>
  [[nodiscard]] detail::AdamWOnDevice begin(const DeviceSummary<Target>& summary) {
    if (!device_step_)
      throw LifecycleError("AdamW: a step on a device must know its learning rate (call set_learning_rate "
                           "before step, or hand the rate to step)");
    detail::run_once(
        "sw::adamw_begin", summary.execution(),
        detail::OpenClippedStep{{device_step(), options_.beta1, options_.beta2, options_.weight_decay},
                                summary.record(),
                                options_.max_norm});
    return {{.beta1 = options_.beta1,
             .beta2 = options_.beta2,
             .epsilon = options_.epsilon,
             .weight_decay = options_.weight_decay},
            device_step()};
  }

  /// @brief Steps taken on the host.
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

private:
  [[nodiscard]] static kernels::AdamWStep& host_part(kernels::AdamWStep& constants) { return constants; }
  [[nodiscard]] static kernels::AdamWStep& host_part(detail::AdamWOnDevice& constants) {
    return constants.constants;
  }
  [[nodiscard]] kernels::AdamWDeviceStep* device_step() const {
    return static_cast<kernels::AdamWDeviceStep*>(device_step_.data());
  }

  AdamWOptions options_;
  detail::BufferHandle device_step_; // of the first device that asks
  std::int64_t steps_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
