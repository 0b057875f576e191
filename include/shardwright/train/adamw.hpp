// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief AdamW over a model's parameters, with clipping by the global norm fused into the update.

#include <shardwright/tensor/kernels/adamw.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/parameter.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Factor that brings a gradient of `norm` down to `max_norm`: max_norm / (norm + 1e-6) where that is
/// below 1. A `max_norm` of 0 does not clip.
[[nodiscard]] inline double clip_coefficient(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

/// @brief Constants of AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2).
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1; ///< On matrices; vectors such as norm gains do not decay.
  double max_norm = 1.0;     ///< Clip the gradient to this global norm; 0: do not.
};

/// @brief AdamW with decoupled weight decay; its moments lie in the parameters.
class AdamW {
public:
  explicit AdamW(AdamWOptions options = {}) : options_(options) {}

  /// @brief Updates every parameter of the model from its finished gradient. Collective where parameters are
  /// stored otherwise than their optimizer state (ZeRO-1, ZeRO-2): the updated blocks are gathered.
  template <ParameterSet Model>
  void step(Model& model, const GradientSummary& summary, double learning_rate) {
    kernels::AdamWStep constants = begin(
        summary.scale.clipped(clip_coefficient(summary.gradient_norm, options_.max_norm)), learning_rate);
    model.for_each_parameter([&](auto& parameter) { update(parameter, parameter.gradient(), constants); });
  }

  /// @brief Updates one parameter; its gradient must be finished: in the layout of the optimizer state.
  /// @param constants from begin()
  template <class P, AnyShardedTensor G>
  void update(P& parameter, const G& gradient, kernels::AdamWStep constants) const {
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
        constants.weight_decay = 0;
      if (!parameter.state())
        parameter.make_state();
      auto& state = *parameter.state();
      parameter.update_weights([&](auto& weights) {
        kernels::adamw_update(weights.execution(), weights.mutable_local_matrix(), gradient.local_matrix(),
                              state.first_moment.mutable_local_matrix(),
                              state.second_moment.mutable_local_matrix(), constants);
      });
    }
  }

  /// @brief Opens the next step: the constants for update().
  [[nodiscard]] kernels::AdamWStep begin(GradientScale gradient_scale, double learning_rate) {
    return {learning_rate,         options_.beta1, options_.beta2,         options_.epsilon,
            options_.weight_decay, ++steps_,       gradient_scale.factor()};
  }

  /// @brief Steps taken.
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

private:
  AdamWOptions options_;
  std::int64_t steps_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
