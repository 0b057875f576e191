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

#include <algorithm>

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
  PassCosts waiting{}; ///< Of the passes: for traffic that takes longer than what it runs beside.

  [[nodiscard]] constexpr double seconds() const noexcept {
    return passes.forward + passes.input_gradient + passes.weight_gradient;
  }
  /// What the backward passes compute.
  [[nodiscard]] constexpr double backward(const Repeats& repeats) const noexcept {
    return passes.input_gradient + passes.weight_gradient - waiting.input_gradient -
           traffic.exposed_seconds() * (1 + repeats.layer);
  }
};

/// Forward and backward seconds.
struct BothPasses {
  double forward = 0;
  double backward = 0;
};

/// Seconds that a chip waits for its host in a layer: launches run ahead, so that the slower of both counts,
/// and a share of the faster where the host must know something first. A backward pass takes `backward_host`
/// times what a forward pass takes a host.
[[nodiscard]] constexpr BothPasses host_waits(const ForwardSeconds& layer, double exposed, double host,
                                              double backward_host, double share,
                                              const Repeats& repeats) noexcept {
  const double again = 1 + repeats.layer;
  const double forward = layer.matmul + layer.attention + layer.elementwise + exposed;
  const double backward = layer.matmul * (1 + again) + layer.attention * (2.5 + repeats.attention) +
                          layer.elementwise * (1 + again) + exposed * again;
  const auto wait = [share](double host_seconds, double device) {
    return std::max(0.0, host_seconds - device) + share * std::min(host_seconds, device);
  };
  return {wait(host, forward), wait(host * (backward_host + repeats.layer), backward)};
}

/// What a schedule does with the passes of a microbatch.
struct PassForm {
  bool splits_backward = false; ///< Weight gradients, which hide nothing, are passes of their own.
  double paired = 0;            ///< Share of the forward passes that run beside a backward pass.
};

/// The form of a plan's passes: DualPipe pairs those between the first and the last of as many microbatches
/// as there are ranks.
[[nodiscard]] constexpr PassForm pass_form(const PlanConfiguration& plan, double microbatches) noexcept {
  return {plan.pp > 1 && splits_backward(plan.schedule),
          pairs_passes(plan) ? std::max(0.0, 1 - plan.pp / microbatches) : 0};
}

/// The passes of one microbatch through some layers.
///
/// A backward pass takes two products for each forward one, half of them for weights; fused attention
/// computes its scores again, five products for two; what is recomputed precedes the input gradient. Traffic
/// that a pass hides slows it down, and a pass, or a pair of them, lasts no less than the traffic beside it.
[[nodiscard]] constexpr StagePass stage_pass(const StageLayers& layers, const RankComputation& computed,
                                             const LayerTraffic& traffic, const Repeats& repeats,
                                             const SharedCalibration& shared, const PassForm& form) noexcept {
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
  const double all = layers.dense + layers.expert, again = 1 + repeats.layer;
  const double of_layer = traffic.tensor.exposed_seconds + traffic.context.exposed_seconds;
  const BothPasses dense = host_waits(computed.dense_layer, of_layer, computed.host, 1, 0, repeats);
  const BothPasses expert = host_waits(computed.expert_layer, of_layer + traffic.expert.exposed_seconds,
                                       computed.expert_host / 3, 2, shared.behind_host, repeats);
  const double launches = all * shared.layer_seconds * (3 + repeats.layer) / 3;
  const BothPasses overhead{launches / 3 + layers.dense * dense.forward + layers.expert * expert.forward,
                            launches * 2 / 3 + layers.dense * dense.backward +
                                layers.expert * expert.backward};
  stage.overhead = overhead.forward + overhead.backward;
  stage.traffic = {all * traffic.tensor, all * traffic.context, layers.expert * traffic.expert};
  const double exposed = stage.traffic.exposed_seconds(), hidden = stage.traffic.hidden_seconds();
  const double slowed = shared.contention * hidden;
  const double forward = f.matmul + f.attention + f.elementwise + slowed + overhead.forward;
  const double input_gradient = f.matmul * again + f.attention * (2.5 + repeats.attention) +
                                f.elementwise * (1 + again) + slowed * again + overhead.backward;
  const double beside = input_gradient + (form.splits_backward ? 0 : f.matmul);
  const double alone = hidden - forward, back = hidden * again - beside; // what traffic takes longer
  const double spared = // by pairs, of which one pass has time left
      alone > 0 && back < 0   ? std::min(alone, -back)
      : back > 0 && alone < 0 ? std::min(back, -alone)
                              : 0;
  stage.waiting = {std::max(0.0, alone) - (alone > 0 ? form.paired * spared : 0),
                   std::max(0.0, back) - (back > 0 ? form.paired * spared : 0), 0};
  stage.passes.forward = forward + exposed + stage.waiting.forward;
  stage.passes.input_gradient = input_gradient + exposed * again + stage.waiting.input_gradient;
  stage.passes.weight_gradient = f.matmul;
  return stage;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
