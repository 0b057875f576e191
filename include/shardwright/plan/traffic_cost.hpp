// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Communication of a step by its purpose: of a layer, of pipeline sends, of data parallelism.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/calibration.hpp>
#include <shardwright/plan/cluster_spec.hpp>
#include <shardwright/plan/collective_time.hpp>
#include <shardwright/plan/memory_cost.hpp>
#include <shardwright/plan/model_spec.hpp>
#include <shardwright/plan/plan_configuration.hpp>
#include <shardwright/plan/run_spec.hpp>
#include <shardwright/plan/step_cost.hpp>

#include <algorithm>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Bytes that a rank sends and seconds on the wire, of the forward pass of one microbatch through one
/// layer or several.
struct LayerTraffic {
  TrafficCost tensor{}, context{}, expert{};

  [[nodiscard]] constexpr double exposed_seconds() const noexcept {
    return tensor.exposed_seconds + context.exposed_seconds + expert.exposed_seconds;
  }
  [[nodiscard]] constexpr double hidden_seconds() const noexcept {
    return tensor.hidden_seconds() + context.hidden_seconds() + expert.hidden_seconds();
  }
};

/// @brief How the groups of a plan lie in the domains of a cluster.
[[nodiscard]] constexpr GroupLinks tensor_links(const ClusterSpec& cluster, const PlanConfiguration& plan,
                                                const SharedCalibration& shared) noexcept {
  return links_of(cluster, {static_cast<double>(plan.tp), 1}, {shared.scale_up, shared.scale_out});
}
[[nodiscard]] constexpr GroupLinks context_links(const ClusterSpec& cluster, const PlanConfiguration& plan,
                                                 const SharedCalibration& shared) noexcept {
  return links_of(cluster, {static_cast<double>(plan.cp), static_cast<double>(plan.tp)},
                  {shared.scale_up, shared.scale_out});
}
[[nodiscard]] constexpr GroupLinks expert_links(const ClusterSpec& cluster, const PlanConfiguration& plan,
                                                const SharedCalibration& shared) noexcept {
  return links_of(cluster, {static_cast<double>(plan.ep), 1}, {shared.scale_up, shared.scale_out});
}

/// @brief The domain that the sends between stages pass: the innermost that holds two of them.
[[nodiscard]] constexpr int send_domain(const ClusterSpec& cluster, const PlanConfiguration& plan) noexcept {
  const double apart = static_cast<double>(plan.tp) * plan.cp * plan.dp;
  int level = 0;
  while (level + 1 < cluster.domain_count &&
         static_cast<double>(cluster.domains[static_cast<std::size_t>(level)].chips) <= apart)
    ++level;
  return level;
}

/// @brief The traffic of a layer, and how much of it nothing hides; a backward pass has as much, a recomputed
/// forward pass too.
///
/// Tensor parallelism gathers and scatters the tokens around attention and around the feed-forward (4 (t-1)/t
/// 2 b s h bytes, as many as two all-reduces); XLA splits products on a torus to overlap them. Context
/// parallelism gathers keys and values. Experts receive and return each copy of a token, which DualPipe was
/// made to hide (arXiv 2412.19437, section 3.2.1).
[[nodiscard]] constexpr LayerTraffic layer_traffic(const ModelSpec& model, const ClusterSpec& cluster,
                                                   const RunSpec& run, const PlanConfiguration& plan,
                                                   const SharedCalibration& shared) noexcept {
  const double t = plan.tp, residual = 2 * rank_tokens(run, plan) * model.hidden;
  LayerTraffic traffic;
  if (plan.tp > 1) {
    const GroupLinks links = tensor_links(cluster, plan, shared);
    traffic.tensor.bytes = 4 * residual * (t - 1) / t;
    traffic.tensor.seconds = 4 * gather_seconds(links, residual);
    const bool torus = cluster.domains[0].torus_dimensions > 0;
    traffic.tensor.exposed_seconds =
        traffic.tensor.seconds * (torus ? shared.torus_exposed : shared.tensor_exposed);
  }
  if (plan.cp > 1) {
    const GroupLinks links = context_links(cluster, plan, shared);
    const double width = model.latent.used() ? model.latent.key_value_rank + model.latent.rotary_width
                                             : 2.0 * model.key_value_heads * model.width_per_head() / t;
    const double gathered = 2 * rank_tokens(run, plan) * plan.cp * width;
    traffic.context.bytes = gathered * (plan.cp - 1) / plan.cp;
    traffic.context.seconds = gather_seconds(links, gathered);
    traffic.context.exposed_seconds = traffic.context.seconds * shared.context_exposed;
  }
  if (plan.ep > 1) {
    const GroupLinks links = expert_links(cluster, plan, shared);
    const double routed = residual / t * model.experts.active;
    traffic.expert.bytes = 2 * routed * (plan.ep - 1) / plan.ep;
    traffic.expert.seconds = 2 * all_to_all_seconds(links, routed, model.experts.active);
    const bool pairs = plan.pp > 1 && (plan.schedule == PlanSchedule::dual_pipe ||
                                       plan.schedule == PlanSchedule::dual_pipe_v);
    traffic.expert.exposed_seconds =
        traffic.expert.seconds * (pairs ? shared.paired_exposed : shared.expert_exposed);
  }
  return traffic;
}

/// @brief Sends of activations and gradients between stages, which are a stage's ranks apart.
/// @param hops sends that the makespan waits for, of `pipeline_shape`.
[[nodiscard]] constexpr TrafficCost send_traffic(const ModelSpec& model, const ClusterSpec& cluster,
                                                 const RunSpec& run, const PlanConfiguration& plan,
                                                 const SharedCalibration& shared, double microbatches,
                                                 int chunks, double hops) noexcept {
  if (plan.pp <= 1)
    return {};
  const int level = send_domain(cluster, plan);
  const DomainSpec& domain = cluster.domains[static_cast<std::size_t>(level)];
  const double bandwidth = domain.bandwidth * (level == 0 ? shared.scale_up : shared.scale_out);
  const double bytes = 2 * rank_tokens(run, plan) * model.hidden / (plan.sequence_parallel ? plan.tp : 1);
  const double one = bytes / bandwidth + domain.latency_seconds, sends = 2 * microbatches * chunks;
  return {sends * bytes, sends * one, std::min(sends, hops * shared.send_exposed) * one};
}

/// @brief Bytes per parameter that data parallelism moves: a reduction and two gathers under ZeRO-3 (1 + 2),
/// a reduction and a gather under ZeRO-1 and 2, an all-reduce otherwise: arXiv 1910.02054, section 7.
struct DataBytes {
  double reduced = 0;
  double gathered = 0;
};
[[nodiscard]] constexpr DataBytes data_bytes(const RunSpec& run, const PlanConfiguration& plan,
                                             const SharedCalibration& shared) noexcept {
  const double parameter = run.optimizer.parameter_bytes, gradient = shared.gradient_bytes;
  return plan.zero_stage >= 3   ? DataBytes{gradient, 2 * parameter}
         : plan.zero_stage >= 1 ? DataBytes{gradient, parameter}
                                : DataBytes{2 * gradient, 0};
}

/// @brief Whether parameters are gathered and gradients reduced with every microbatch: ZeRO-3 without a
/// pipeline. Else they are once a step.
[[nodiscard]] constexpr bool data_each_microbatch(const PlanConfiguration& plan) noexcept {
  return plan.zero_stage >= 3 && plan.pp == 1;
}
/// @brief Part of a microbatch's passes that data-parallel traffic may run beside. Backward passes are two
/// thirds of a microbatch, and the first buckets must be filled.
[[nodiscard]] constexpr double data_beside(const PlanConfiguration& plan) noexcept {
  return data_each_microbatch(plan) ? 1 : 0.7;
}

/// @brief Calls `function(parameters, ranks, links)` for each group that shares parameters as data
/// parallelism: of what is dense, and of experts.
template <class Function>
constexpr void for_each_data_group(const ClusterSpec& cluster, const PlanConfiguration& plan,
                                   const RankParameters& held, const SharedCalibration& shared,
                                   const Function& function) noexcept {
  const auto visit = [&](double parameters, double ranks, double stride) {
    if (ranks > 1 && parameters > 0)
      function(parameters, ranks, links_of(cluster, {ranks, stride}, {shared.scale_up, shared.scale_out}));
  };
  visit(held.dense, static_cast<double>(plan.dp) * plan.cp, plan.tp);
  visit(held.experts, static_cast<double>(plan.expert_dp()), plan.ep);
}

/// @brief Gradients reduced and parameters gathered.
/// @param pass_seconds of one microbatch on a rank: it hides what runs beside it.
[[nodiscard]] constexpr TrafficCost data_traffic(const ClusterSpec& cluster, const RunSpec& run,
                                                 const PlanConfiguration& plan, const RankParameters& held,
                                                 const SharedCalibration& shared, double microbatches,
                                                 double pass_seconds) noexcept {
  const DataBytes each = data_bytes(run, plan, shared);
  const double per_parameter = each.reduced + each.gathered;
  double seconds = 0, bytes = 0;
  for_each_data_group(cluster, plan, held, shared,
                      [&](double parameters, double ranks, const GroupLinks& links) {
                        bytes += per_parameter * parameters * (ranks - 1) / ranks;
                        seconds += gather_seconds(links, per_parameter * parameters);
                      });
  const double beside = data_beside(plan) * pass_seconds;
  const double times = data_each_microbatch(plan) ? microbatches : 1;
  return {times * bytes, times * seconds, times * std::max(seconds * shared.data_exposed, seconds - beside)};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
