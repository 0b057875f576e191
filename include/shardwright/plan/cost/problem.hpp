// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The rules that a configuration must obey, and the first one that it breaks.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/pipeline_shape.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <algorithm>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Products of two values up to this limit do not overflow.
[[nodiscard]] constexpr bool exceeds_planner(const ModelSpec& model, const ClusterSpec& cluster,
                                             const RunSpec& run) noexcept {
  const StateSpaceSpec& space = model.state_space;
  const ExpertSpec& experts = model.experts;
  const std::int64_t most = std::max<std::int64_t>(
      {model.layers, model.prediction_layers, model.hidden, model.heads, model.key_value_heads,
       model.head_width, model.feed_forward, model.vocabulary, experts.count, experts.width,
       experts.shared_width, experts.latent_width,
       std::int64_t{experts.shared} * (experts.shared_width > 0 ? experts.shared_width : experts.width),
       space.layers, space.attention_layers, space.heads, space.head_width, space.groups, space.state});
  return most > 1 << 27 || std::max({cluster.chips(), run.sequences, run.sequence_length}) > 1 << 30;
}

} // namespace detail

/// @brief The first rule that a configuration breaks, not counting memory; `none` if it can run.
[[nodiscard]] constexpr PlanProblem problem_of(const ModelSpec& model, const ClusterSpec& cluster,
                                               const RunSpec& run, const PlanConfiguration& plan) {
  const int least =
      std::min({plan.tp, plan.cp, plan.pp, plan.ep, plan.dp, plan.microbatch, plan.chunks, model.layers,
                model.hidden, model.heads, model.vocabulary, model.key_value_heads, model.experts.every});
  if (least <= 0 || std::min({cluster.chips(), run.sequences, run.sequence_length}) <= 0 ||
      !(cluster.chip.peak_bf16 > 0) || !(cluster.chip.memory_bandwidth > 0) || model.prediction_layers < 0 ||
      model.feed_forwards() <= 0)
    return PlanProblem::empty_input;
  if (detail::exceeds_planner(model, cluster, run))
    return PlanProblem::too_large;
  if (plan.chips() != cluster.chips())
    return PlanProblem::chips_differ;
  const std::int64_t at_once = static_cast<std::int64_t>(plan.dp) * plan.microbatch;
  if (run.sequences % at_once != 0)
    return PlanProblem::batch_not_divisible;
  if (model.heads % plan.tp != 0)
    return PlanProblem::heads_not_divisible;
  const bool pads = cluster.chip.host() == HostKind::compiled; // XLA pads the parts of a sequence
  if (run.sequence_length %
          (static_cast<std::int64_t>(plan.cp) * (plan.sequence_parallel && !pads ? plan.tp : 1)) !=
      0)
    return PlanProblem::sequence_not_divisible;
  if (!has_layers_for(plan.schedule, plan.pp, plan.chunks, model.stacked_layers()))
    return PlanProblem::layers_too_few;
  if (plan.ep > 1 && (!model.experts.used() || model.experts.count % plan.ep != 0 ||
                      (static_cast<std::int64_t>(plan.tp) * plan.cp * plan.dp) % plan.ep != 0))
    return PlanProblem::experts_not_divisible;
  if (plan.shard_ranks < 0 ||
      (plan.shard_ranks > 0 &&
       (model.experts.used() || static_cast<std::int64_t>(plan.dp) * plan.cp % plan.shard_ranks != 0)))
    return PlanProblem::shards_not_divisible;
  if (!run.allows_extent(plan.tp) || !run.allows_extent(plan.cp))
    return PlanProblem::not_reproducible;
  if (!rule_of(plan.schedule, plan.pp, static_cast<int>(run.sequences / at_once)).holds())
    return PlanProblem::schedule_rule;
  return PlanProblem::none;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
