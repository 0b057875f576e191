// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief AdamW over a model's parameters, with clipping by the global norm fused into the update.

#include <shardwright/core/error.hpp>
#include <shardwright/tensor/device_value.hpp>
#include <shardwright/tensor/kernels/adamw.hpp>
#include <shardwright/tensor/kernels/adamw_device_step.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer_states.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/step_record.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

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
  double weight_decay = 0.1;
  double max_norm = 1.0; ///< Clip the gradient to this global norm; 0: do not.
  std::vector<ParameterGroup> groups = decay_matrices();
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

/// Updates of parameters with elements of one kind.
template <class Execution, class Element>
using AdamWOf = kernels::AdamWLaunches<Execution, MainElement<Element>, Element>;

/// The updates of a model's parameters, launched together where the model names their `element`.
template <class Model, class Execution>
struct AdamWTogether {
  explicit AdamWTogether(const Execution&) {}
  void launch() {}
};
template <class Model, class Execution>
requires requires { typename Model::element; }
struct AdamWTogether<Model, Execution> : AdamWOf<Execution, typename Model::element> {
  using AdamWOf<Execution, typename Model::element>::AdamWOf;
};

} // namespace detail

/// @brief AdamW with decoupled weight decay.
///
/// On a device the learning rate, the number of steps and the clipping are in its memory, where the kernels
/// read them: the host waits for nothing, a captured step stays valid when the rate changes, and a step that
/// is not finite, or that a StepGuard holds back, changes nothing. Parameters of a model that names their
/// `element` are updated many in a launch, and rounded to where they are stored in the same pass.
class AdamW {
public:
  explicit AdamW(AdamWOptions options = {}) : options_(options) {}

  /// @brief Updates every parameter of the model from its finished gradient. Collective where parameters are
  /// stored otherwise than their optimizer state (ZeRO-1, ZeRO-2): the updated blocks are gathered.
  template <ParameterSet Model>
  void step(Model& model, const GradientSummary& summary, double learning_rate) {
    const kernels::AdamWStep constants = begin(
        summary.scale.clipped(clip_coefficient(summary.gradient_norm, options_.max_norm)), learning_rate);
    for_each_parameter(model, [&](auto& parameter) { update(parameter, parameter.gradient(), constants); });
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
    detail::AdamWTogether<Model, typename Target::execution_space> together(summary.execution());
    for_each_parameter(model, [&](auto& parameter) { update_on_device(parameter, constants, together); });
    together.launch();
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
  template <class P, AnyShardedTensor G>
  void update(P& parameter, const G& gradient, kernels::AdamWStep constants) {
    if constexpr (updates<P, G>()) {
      auto& state = state_of(parameter, constants);
      parameter.update_weights([&](auto& weights) {
        kernels::adamw_update(weights.execution(), weights.mutable_local_matrix(), gradient.local_matrix(),
                              state[0].mutable_local_matrix(),
                              state[1].mutable_local_matrix(), constants);
      });
    }
  }

  /// @brief Opens the next step: the constants for update().
  [[nodiscard]] kernels::AdamWStep begin(GradientScale gradient_scale, double learning_rate) {
    return {learning_rate,         options_.beta1, options_.beta2,         options_.epsilon,
            options_.weight_decay, ++steps_,       gradient_scale.factor()};
  }

  /// @brief Calls visit(name, tensor) for the moments of a parameter, where a step has made them: "first moment", "second
  /// moment".
  template <class P, class Visitor>
  void for_each_state(const P& parameter, Visitor&& visit) {
    states_.visit(parameter, visit);
  }
  /// @brief Steps taken on the host.
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

private:
  /// Opens the next step from a finished one on a device.
  template <class Target>
  [[nodiscard]] detail::AdamWOnDevice begin(const DeviceSummary<Target>& summary) {
    if (!device_step_)
      throw LifecycleError(
          "AdamW: a step on a device must know its learning rate (call set_learning_rate before step, or hand the rate to step)");
    detail::run_once(
        "sw::adamw_begin", summary.execution(),
        detail::OpenClippedStep{{device_step(), options_.beta1, options_.beta2},
                                summary.record(),
                                options_.max_norm});
    return {{.learning_rate = 1,
             .beta1 = options_.beta1,
             .beta2 = options_.beta2,
             .epsilon = options_.epsilon,
             .weight_decay = options_.weight_decay},
            device_step()};
  }

  /// Whether a gradient is one for update(): a sentence where it is not.
  template <class P, class G>
  static constexpr bool updates() {
    using L = typename G::layout;
    constexpr bool finished = !L::value.has_partial();
    constexpr bool fits = std::is_same_v<L, typename P::state_layout>;
    static_assert(
        finished,
        "AdamW: the gradient must not be Partial, an unfinished sum (finish() the GradAccumulator, or redistribute it to the parameter's gradient_layout)");
    static_assert(
        !finished || fits,
        "AdamW: the optimizer state must lie where the gradient does (redistribute the gradient to the parameter's gradient_layout, or choose the Zero type that shards both alike)");
    return finished && fits;
  }

  /// The moments, zero at first; sets what differs between parameters.
  template <class P>
  [[nodiscard]] auto& state_of(P& parameter, kernels::AdamWStep& constants) {
    auto& state = states_.of(parameter, options_.groups);
    constants.learning_rate *= state.learning_rate_factor;
    constants.weight_decay *= state.weight_decay_factor;
    return state.tensors;
  }

  /// On a device: with the updates that are launched together, where it is of their elements and in place.
  template <class P, class Together>
  void update_on_device(P& parameter, detail::AdamWOnDevice step, Together& together) {
    using Execution = typename P::target::execution_space;
    using Rounds = detail::AdamWOf<Execution, typename P::element>;
    using Keeps = detail::AdamWOf<Execution, typename P::main_element>;
    auto& state = state_of(parameter, step.constants);
    const auto add = [&](auto& launches, const auto& weights, auto* rounded) {
      launches.add(weights, rounded, parameter.gradient().local_matrix(), state[0].mutable_local_matrix(),
                   state[1].mutable_local_matrix(), step.constants, step.step);
    };
    const auto& execution = parameter.stored().execution();
    if (const auto place = parameter.in_place()) {
      const VectorView<typename P::main_element, typename P::target> weights(
          place->weights, parameter.gradient().local_size());
      if constexpr (std::is_base_of_v<Rounds, Together>) {
        add(together, weights, place->rounded);
      } else {
        Rounds alone(execution);
        add(alone, weights, place->rounded);
        alone.launch();
      }
    } else {
      parameter.update_weights([&](auto& weights) {
        Keeps alone(execution);
        add(alone, weights.mutable_local_matrix(), static_cast<typename P::main_element*>(nullptr));
        alone.launch();
      });
    }
  }

  [[nodiscard]] kernels::AdamWDeviceStep* device_step() const {
    return static_cast<kernels::AdamWDeviceStep*>(device_step_.data());
  }

  AdamWOptions options_;
  OptimizerStates<2> states_{{"first moment", "second moment"}};
  detail::BufferHandle device_step_; // of the first device that asks
  std::int64_t steps_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
