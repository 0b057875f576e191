// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The passes of one microbatch through layers of one rank, exposed communication included.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/compute_time.hpp>
#include <shardwright/plan/cost/traffic.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/schedule/pass_costs.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Layers of a rank; fractions where they are a mean over stages.
struct StageLayers {
  double dense = 0;
  double expert = 0;
  double head = 0; ///< Share of the logits and the loss.
};

/// Forward passes that a backward pass repeats, of what surrounds attention and of attention itself.
struct Repeats {
  double layer = 0;
  double attention = 0;
};

[[nodiscard]] constexpr Repeats repeats_of(Recompute recomputation) noexcept {
  return {recomputation == Recompute::full ? 1.0 : 0.0, recomputation == Recompute::none ? 0.0 : 1.0};
}

/// Seconds of one microbatch on a stage, in parts and as the passes of a schedule.
struct StagePass {
  ForwardSeconds forward{};
  double overhead = 0;    ///< Of all passes.
  LayerTraffic traffic{}; ///< Forward.
  PassCosts passes{};

  [[nodiscard]] constexpr double seconds() const noexcept {
    return passes.forward + passes.input_gradient + passes.weight_gradient;
  }
};

/// The passes of one microbatch through some layers.
///
/// A backward pass takes two products for each forward one, half of them for weights; fused attention
/// computes its scores again, five products for two; what is recomputed precedes the input gradient. Traffic
/// that a pass hides slows it down.
[[nodiscard]] constexpr StagePass stage_pass(const StageLayers& layers, const RankComputation& computed,
                                             const LayerTraffic& traffic, const Repeats& repeats,
                                             const SharedCalibration& shared) noexcept {
  StagePass stage;
  ForwardSeconds& f = stage.forward;
  const auto add = [&f](const ForwardSeconds& one, double times) {
    f.matmul += one.matmul * times;
    f.attention += one.attention * times;
    f.elementwise += one.elementwise * times;
  };
  add(computed.dense_layer, layers.dense);
  add(computed.expert_layer, layers.expert);
  add(computed.head, layers.head);
  const double all = layers.dense + layers.expert;
  stage.overhead =
      (all * shared.layer_seconds + layers.expert * computed.expert_overhead) * (3 + repeats.layer) / 3;
  stage.traffic = {all * traffic.tensor, all * traffic.context, layers.expert * traffic.expert};
  const double sent = stage.traffic.exposed_seconds() + shared.contention * stage.traffic.hidden_seconds();
  stage.passes.forward = f.matmul + f.attention + f.elementwise + sent + stage.overhead / 3;
  stage.passes.weight_gradient = f.matmul;
  stage.passes.input_gradient = f.matmul * (1 + repeats.layer) + f.attention * (2.5 + repeats.attention) +
                                f.elementwise * (2 + repeats.layer) + sent * (1 + repeats.layer) +
                                stage.overhead * 2 / 3;
  return stage;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
