// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Communication of a step by its purpose: of a layer, of pipeline sends, of data parallelism.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/calibration.hpp>
#include <shardwright/plan/cluster_spec.hpp>
#include <shardwright/plan/memory_cost.hpp>
#include <shardwright/plan/model_spec.hpp>
#include <shardwright/plan/plan_configuration.hpp>
#include <shardwright/plan/plan_links.hpp>
#include <shardwright/plan/run_spec.hpp>
#include <shardwright/plan/step_cost.hpp>

#include <algorithm>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Bytes that a rank sends and seconds on the wire, of one layer's forward pass of one microbatch.
struct LayerTraffic {
  TrafficCost tensor{}, context{}, expert{};
};

/// @brief Whether the schedule runs a forward beside a backward, which hides the traffic of experts.
[[nodiscard]] constexpr bool pairs_passes(const PlanConfiguration& plan) noexcept {
  return plan.pp > 1 &&
         (plan.schedule == PlanSchedule::dual_pipe || plan.schedule == PlanSchedule::dual_pipe_v);
}

/// @brief The traffic of a layer, and how much of it nothing hides; a backward pass has as much, a recomputed
/// forward pass too.
///
/// Tensor parallelism gathers and scatters the tokens around attention and around the feed-forward (4 (t-1)/t
/// 2 b s h bytes, as many as two all-reduces); XLA splits products on a torus to overlap them. Context
/// parallelism gathers keys and values. Experts receive and return each copy of a token, which DualPipe was
/// made to hide (arXiv 2412.19437, section 3.2.1).
/// @param links of the plan in the cluster.
[[nodiscard]] constexpr LayerTraffic layer_traffic(const ModelSpec& model, const ClusterSpec& cluster,
                                                   const RunSpec& run, const PlanConfiguration& plan,
                                                   const PlanLinks& links,
                                                   const SharedCalibration& shared) noexcept {
  const double t = plan.tp, residual = 2 * rank_tokens(run, plan) * model.hidden;
  LayerTraffic traffic;
  if (plan.tp > 1) {
    traffic.tensor.bytes = 4 * residual * (t - 1) / t;
    traffic.tensor.seconds = 4 * links.tensor.seconds(residual);
    const bool torus = cluster.domains[0].torus_dimensions > 0;
    traffic.tensor.exposed_seconds =
        traffic.tensor.seconds * (torus ? shared.torus_exposed : shared.tensor_exposed);
  }
  if (plan.cp > 1) {
    const double width = model.latent.used() ? model.latent.key_value_rank + model.latent.rotary_width
                                             : 2.0 * model.key_value_heads * model.width_per_head() / t;
    const double gathered = 2 * rank_tokens(run, plan) * plan.cp * width;
    traffic.context.bytes = gathered * (plan.cp - 1) / plan.cp;
    traffic.context.seconds = links.context.seconds(gathered);
    traffic.context.exposed_seconds = traffic.context.seconds * shared.context_exposed;
  }
  if (plan.ep > 1) {
    const double routed = residual / t * model.experts.active;
    traffic.expert.bytes = 2 * routed * (plan.ep - 1) / plan.ep;
    traffic.expert.seconds = 2 * links.expert.seconds(routed);
    traffic.expert.exposed_seconds = traffic.expert.seconds *
                                     (pairs_passes(plan) ? shared.paired_exposed : shared.expert_exposed) *
                                     (run.captured_experts ? shared.captured_share : 1);
  }
  return traffic;
}

/// @brief Sends of activations and gradients between stages.
/// @param hops sends that the makespan waits for, of `pipeline_shape`.
[[nodiscard]] constexpr TrafficCost send_traffic(const ModelSpec& model, const RunSpec& run,
                                                 const PlanConfiguration& plan, const PlanLinks& links,
                                                 const SharedCalibration& shared, double microbatches,
                                                 int chunks, double hops) noexcept {
  if (plan.pp <= 1)
    return {};
  const double bytes = 2 * rank_tokens(run, plan) * model.hidden / (plan.sequence_parallel ? plan.tp : 1);
  const double one = links.pipeline.seconds(bytes), sends = 2 * microbatches * chunks;
  return {sends * bytes, sends * one, std::min(sends, hops * shared.send_exposed) * one};
}

/// @brief Gradients reduced and parameters gathered: once a step, or once a microbatch under ZeRO-3 without a
/// pipeline. A reduction and two gathers under ZeRO-3 (1 + 2), a reduction and a gather under ZeRO-1 and 2,
/// an all-reduce otherwise: arXiv 1910.02054, section 7.
/// @param pass_seconds of one microbatch on a rank: it hides what runs beside it.
[[nodiscard]] constexpr TrafficCost data_traffic(const RunSpec& run, const PlanConfiguration& plan,
                                                 const RankParameters& held, const PlanLinks& links,
                                                 const SharedCalibration& shared, double microbatches,
                                                 double pass_seconds) noexcept {
  const bool each_microbatch = plan.zero_stage >= 3 && plan.pp == 1;
  const double parameter = run.optimizer.parameter_bytes, gradient = shared.gradient_bytes;
  const double per_parameter = plan.zero_stage >= 3   ? 2 * parameter + gradient
                               : plan.zero_stage >= 1 ? parameter + gradient
                                                      : 2 * gradient;
  double seconds = 0, bytes = 0;
  const auto add = [&](double parameters, double ranks, const LinkCost& link) {
    if (ranks <= 1 || parameters <= 0)
      return;
    bytes += per_parameter * parameters * (ranks - 1) / ranks;
    seconds += link.seconds(per_parameter * parameters);
  };
  add(held.dense, static_cast<double>(plan.dp) * plan.cp, links.data);
  add(held.experts, static_cast<double>(plan.expert_dp()), links.expert_data);
  // Backward passes are two thirds of a microbatch, and the first buckets must be filled.
  const double beside = each_microbatch ? pass_seconds : 0.7 * pass_seconds;
  const double times = each_microbatch ? microbatches : 1;
  return {times * bytes, times * seconds, times * std::max(seconds * shared.data_exposed, seconds - beside)};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
