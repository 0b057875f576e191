// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The passes of one microbatch through layers of one rank, exposed communication included.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/compute_time.hpp>
#include <shardwright/plan/cost/pipeline_shape.hpp>
#include <shardwright/plan/cost/traffic.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/schedule/pass_costs.hpp>

#include <algorithm>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Layers of a rank; fractional if averaged over stages.
struct StageLayers {
  double dense = 0;
  double expert = 0;
  double head = 0; ///< Share of the logits and the loss.
};

/// The parts of a forward pass that a backward pass runs again: all, or those of a selective recomputation.
struct Repeats {
  double layer = 0;
  double selected = 0;
  double dense_tensor = 0;  ///< Tensor-parallel traffic of a layer with a dense feed-forward.
  double expert_tensor = 0; ///< The same for one with experts.
  double context = 0;       ///< Gathers of keys and values.
  double expert = 0;        ///< All-to-alls, and the host's time for the experts.

  [[nodiscard]] constexpr ForwardSeconds of(const ForwardSeconds& all, const ForwardSeconds& again,
                                            const ForwardSeconds& skipped = {}) const noexcept {
    ForwardSeconds out = layer * all;
    out += -layer * skipped;
    out += selected * again;
    return out;
  }
};

/// Half of a layer's tensor-parallel traffic is that of its feed-forward, half of that before its products.
[[nodiscard]] constexpr Repeats repeats_of(const RunSpec& run, const PlanConfiguration& plan) noexcept {
  if (plan.recomputation == Recompute::full)
    return {1, 0, 1, 1, 1, run.stops_early ? 0.5 : 1};
  if (plan.recomputation == Recompute::none)
    return {};
  const RecomputedOperations& again = plan.recomputed;
  const bool experts = again.has(LayerOperation::experts);
  const auto part = [&again](LayerOperation one) { return again.has(one) ? 0.25 : 0; };
  const double attended = part(LayerOperation::qkv_projections) + part(LayerOperation::output_projection);
  return {.selected = 1,
          .dense_tensor =
              attended +
              (again.has(LayerOperation::feed_forward) ? 0.5 : part(LayerOperation::up_projections)),
          .expert_tensor = attended + (experts ? 0.5 : 0),
          .expert = experts ? 1.0 : 0.0};
}

/// Seconds of one microbatch on a stage, in parts and as the passes of a schedule.
struct StagePass {
  ForwardSeconds forward{};
  ForwardSeconds again{}; ///< The part of it that the backward passes compute again.
  double overhead = 0;    ///< Of all passes.
  PassCosts passes{};
  PassCosts waiting{}; ///< Time by which passes wait for traffic that takes longer than the work it overlaps.
  double hidden = 0;   ///< Traffic that passes hide.
  double returning = 0; ///< Exposed traffic of the backward passes.

  /// Seconds that the backward passes compute.
  [[nodiscard]] constexpr double backward() const noexcept {
    return passes.input_gradient + passes.weight_gradient - waiting.input_gradient - returning;
  }
};

/// Forward and backward seconds.
struct BothPasses {
  double forward = 0;
  double backward = 0;
};

/// Seconds that a chip waits for its host in a layer: launches run ahead, so the slower of the two counts,
/// plus a share of the faster one if the host must know something first. A backward pass takes the host
/// `backward_host` times as long as a forward pass.
[[nodiscard]] constexpr BothPasses host_waits(const ForwardSeconds& layer, const ForwardSeconds& again,
                                              double exposed, double returned, double host,
                                              double backward_host, double share) noexcept {
  const double forward = layer.matmul + layer.attention + layer.elementwise + exposed;
  const double backward = layer.matmul * 2 + again.matmul + layer.attention * 2.5 + again.attention +
                          layer.elementwise * 2 + again.elementwise + returned;
  const auto wait = [share](double host_seconds, double device) {
    return std::max(0.0, host_seconds - device) + share * std::min(host_seconds, device);
  };
  return {wait(host, forward), wait(host * backward_host, backward)};
}

/// The use that a schedule makes of the passes of a microbatch.
struct PassForm {
  bool splits_backward = false; ///< Weight gradients, which hide nothing, are separate passes.
  double paired = 0;            ///< Share of the forward passes that run beside a backward pass.
};

/// The shape of a plan's passes: DualPipe pairs the passes of all microbatches but as many as there are
/// ranks, at the start and at the end.
[[nodiscard]] constexpr PassForm pass_form(const PlanConfiguration& plan, double microbatches) noexcept {
  return {plan.pp > 1 && splits_backward(plan.schedule),
          pairs_passes(plan) ? std::max(0.0, 1 - plan.pp / microbatches) : 0};
}

/// Recomputation of a layer of one kind in its backward pass, and the time that its passes wait for the host.
struct LayerPass {
  ForwardSeconds again{};
  BothPasses waits{};
};

/// The terms that all stages of a plan share, however many layers each has. Refers to its arguments.
struct LayerPasses {
  const RankComputation& computed;
  const LayerTraffic& traffic; ///< Of a layer's forward pass.
  const SharedCalibration& shared;
  Repeats repeats;
  PassForm form;
  LayerPass dense{}, expert{};

  constexpr LayerPasses(const ModelSpec& model, const RankComputation& of_rank, const LayerTraffic& of_layer,
                        const Repeats& repeated, const SharedCalibration& constants,
                        const PassForm& of_passes) noexcept
      : computed(of_rank), traffic(of_layer), shared(constants), repeats(repeated), form(of_passes) {
    const double both = traffic.tensor.exposed_seconds + traffic.context.exposed_seconds;
    const double gathered = (1 + repeats.context) * traffic.context.exposed_seconds;
    if (model.dense_layers() > 0) {
      dense.again = repeats.of(computed.dense_layer, computed.dense_again, computed.dense_skipped);
      dense.waits = host_waits(computed.dense_layer, dense.again, both,
                               (1 + repeats.dense_tensor) * traffic.tensor.exposed_seconds + gathered,
                               computed.host, 1 + repeats.layer, 0);
    }
    if (model.expert_layers() > 0) {
      expert.again = repeats.of(computed.expert_layer, computed.expert_again, computed.expert_skipped);
      expert.waits = host_waits(computed.expert_layer, expert.again, both + traffic.expert.exposed_seconds,
                                (1 + repeats.expert_tensor) * traffic.tensor.exposed_seconds + gathered +
                                    (1 + repeats.expert) * traffic.expert.exposed_seconds,
                                computed.expert_host / 3, 2 + repeats.expert, shared.behind_host);
    }
  }
};

/// The traffic of one microbatch through some layers: that of the forward pass, and that of the backward
/// passes with the parts that they run again.
struct StageTraffic {
  LayerTraffic forward{}, returned{};
};
[[nodiscard]] constexpr StageTraffic stage_traffic(const StageLayers& layers,
                                                   const LayerPasses& each) noexcept {
  const Repeats& repeats = each.repeats;
  const LayerTraffic& traffic = each.traffic;
  const double all = layers.dense + layers.expert;
  return {
      {all * traffic.tensor, all * traffic.context, layers.expert * traffic.expert},
      {(all + layers.dense * repeats.dense_tensor + layers.expert * repeats.expert_tensor) * traffic.tensor,
       all * (1 + repeats.context) * traffic.context, layers.expert * (1 + repeats.expert) * traffic.expert}};
}

/// The passes of one microbatch through some layers.
///
/// A backward pass takes two products for each forward one, half of them for weights; fused attention
/// computes its scores again, five products for two; recomputation precedes the input gradient. Traffic that
/// a pass hides slows it down, and a pass, or a pair of passes, lasts at least as long as the traffic beside
/// it.
[[nodiscard]] constexpr StagePass stage_pass(const StageLayers& layers, const LayerPasses& each) noexcept {
  const StageTraffic traffic = stage_traffic(layers, each);
  StagePass stage;
  const ForwardSeconds& f = stage.forward;
  const ForwardSeconds& again = stage.again;
  stage.forward += layers.head * each.computed.head;
  const double all = layers.dense + layers.expert;
  if (layers.dense > 0) {
    stage.forward += layers.dense * each.computed.dense_layer;
    stage.again += layers.dense * each.dense.again;
  }
  if (layers.expert > 0) {
    stage.forward += layers.expert * each.computed.expert_layer;
    stage.again += layers.expert * each.expert.again;
  }
  const double launches = all * each.shared.layer_seconds * (3 + each.repeats.layer) / 3;
  const BothPasses overhead{launches / 3 + layers.dense * each.dense.waits.forward +
                                layers.expert * each.expert.waits.forward,
                            launches * 2 / 3 + layers.dense * each.dense.waits.backward +
                                layers.expert * each.expert.waits.backward};
  stage.overhead = overhead.forward + overhead.backward;
  const double hidden = traffic.forward.hidden_seconds(), returned = traffic.returned.hidden_seconds();
  const double forward =
      f.matmul + f.attention + f.elementwise + each.shared.contention * hidden + overhead.forward;
  const double input_gradient = f.matmul + again.matmul + f.attention * 2.5 + again.attention +
                                f.elementwise * 2 + again.elementwise + each.shared.contention * returned +
                                overhead.backward;
  const double beside = input_gradient + (each.form.splits_backward ? 0 : f.matmul);
  const double alone = hidden - forward, back = returned - beside; // the time by which traffic takes longer
  const double spared =                                            // by pairs in which one pass has time left
      alone > 0 && back < 0   ? std::min(alone, -back)
      : back > 0 && alone < 0 ? std::min(back, -alone)
                              : 0;
  stage.waiting = {std::max(0.0, alone) - (alone > 0 ? each.form.paired * spared : 0),
                   std::max(0.0, back) - (back > 0 ? each.form.paired * spared : 0), 0};
  stage.hidden = hidden + returned;
  stage.returning = traffic.returned.exposed_seconds();
  stage.passes.forward = forward + traffic.forward.exposed_seconds() + stage.waiting.forward;
  stage.passes.input_gradient = input_gradient + stage.returning + stage.waiting.input_gradient;
  stage.passes.weight_gradient = f.matmul;
  return stage;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
