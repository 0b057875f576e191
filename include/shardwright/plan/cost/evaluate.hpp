// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The cost of one step of a configuration: memory, time and its parts, in well under a microsecond.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/compute_time.hpp>
#include <shardwright/plan/cost/links.hpp>
#include <shardwright/plan/cost/memory.hpp>
#include <shardwright/plan/cost/model_size.hpp>
#include <shardwright/plan/cost/problem.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/cost/step_times.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The operations of one token's forward pass outside the layers: logits, and the products that join the
/// inputs of modules of multi-token prediction.
[[nodiscard]] constexpr double head_flops(const ModelSpec& model) noexcept {
  const double h = model.hidden, modules = model.prediction_layers;
  return 2 * ((1 + modules) * h * model.vocabulary + 2 * modules * h * h);
}

/// The operations of one token in the parts that a plan lists for its backward passes to run again.
[[nodiscard]] constexpr double listed_flops(const ModelSpec& model, const ModelSize& size, double sequence,
                                            const RecomputedOperations& again,
                                            FlopsConvention convention) noexcept {
  const double expert_layers = model.expert_layers(), matrices = model.gated ? 3 : 2;
  const bool experts = again.has(LayerOperation::experts);
  double flops = 0;
  if (again.has(LayerOperation::attention))
    flops += model.attention_layers() * attention_flops_per_pair(model) *
             attended_tokens(model, sequence, convention);
  const double output = static_cast<double>(model.value_width()) * model.heads * model.hidden;
  if (again.has(LayerOperation::qkv_projections))
    flops += 2 * model.attention_layers() * (size.attention_per_layer - output);
  if (again.has(LayerOperation::output_projection))
    flops += 2 * model.attention_layers() * output;
  if (again.has(LayerOperation::feed_forward))
    flops += 2 * model.dense_layers() * size.dense_per_layer;
  else if (again.has(LayerOperation::up_projections))
    flops += 2 * model.dense_layers() * size.dense_per_layer * (matrices - 1) / matrices;
  if (experts || again.has(LayerOperation::shared_experts))
    flops += 2 * expert_layers * matrices * model.hidden * model.shared_expert_width();
  if (experts)
    flops += 2 * expert_layers * matrices * model.routed_width() * model.experts.width * model.experts.active;
  if (const LatentAttention& latent = model.latent; latent.used() &&
                                                    again.has(LayerOperation::latent_projections) &&
                                                    !again.has(LayerOperation::qkv_projections))
    flops += 2.0 * model.attention_layers() * model.heads *
             (latent.query_rank * (latent.plain_width + latent.rotary_width) +
              latent.key_value_rank * (latent.plain_width + latent.value_width));
  return flops;
}

/// The operations that recomputation adds to a step. A full one is a forward pass of the layers, in which XLA
/// drops the last product of a dense one, whose result nothing reads; a selective one counts the scores'
/// 12 s h per token and layer again, as arXiv 2205.05198, appendix A, does, although it computes a third.
[[nodiscard]] constexpr double recomputed_flops(const ModelSpec& model, const ModelSize& size,
                                                const RunSpec& run, const PlanConfiguration& plan,
                                                HostKind host, double flops,
                                                FlopsConvention convention) noexcept {
  const double tokens = static_cast<double>(run.tokens());
  if (plan.recomputation == Recompute::none)
    return 0;
  if (plan.recomputation == Recompute::full) {
    const double last = 2 * model.dense_layers() * size.dense_per_layer / (model.gated ? 3 : 2);
    return flops / 3 - tokens * (head_flops(model) + (host == HostKind::compiled ? last : 0));
  }
  const RecomputedOperations& again = plan.recomputed;
  if (!again.empty())
    return tokens * listed_flops(model, size, static_cast<double>(run.sequence_length), again, convention);
  return 3 * tokens * model.attention_layers() * attention_flops_per_pair(model) *
         attended_tokens(model, static_cast<double>(run.sequence_length), convention);
}

} // namespace detail

/// @brief Cost of one step.
///
/// `add_times` sums up the time; docs/explanation/planner.md derives every term. Nothing is allocated.
[[nodiscard]] constexpr StepCost evaluate(const ModelSpec& model, const ClusterSpec& cluster,
                                          const RunSpec& run, const PlanConfiguration& plan,
                                          const Calibration& calibration) {
  StepCost cost;
  cost.problem = problem_of(model, cluster, run, plan);
  if (is_unusable(cost.problem))
    return cost;
  const SharedCalibration& shared = calibration.shared;
  const ModelSize size = size_of(model);
  const detail::HeldParameters held(model, size, plan);
  const PlanLinks links = plan_links(cluster, plan, copies_of(model, run), shared);
  detail::add_times(cost, model, cluster, run, plan, shared,
                    detail::rank_computation(model, cluster, run, plan, calibration), links, held.most());
  const RatioInterval& ratios = model.experts.used() ? calibration.experts : calibration.dense;
  cost.least_seconds = cost.step_seconds * ratios.least;
  cost.most_seconds = cost.step_seconds * ratios.most;

  cost.memory =
      memory_cost(model, size, run, plan, detail::kept_microbatches(run, plan), held, cluster.chip.host());
  if (cost.problem == PlanProblem::none && cost.memory.total() > cluster.chip.memory_bytes)
    cost.problem = PlanProblem::out_of_memory;

  cost.tokens = static_cast<double>(run.tokens());
  for (const FlopsConvention convention : {FlopsConvention::causal, FlopsConvention::non_causal}) {
    const double flops =
        cost.tokens * flops_per_token(model, size, static_cast<double>(run.sequence_length), convention);
    cost.flops[static_cast<std::size_t>(convention)] = {
        flops, detail::recomputed_flops(model, size, run, plan, cluster.chip.host(), flops, convention)};
  }
  cost.peak_flops = cluster.chip.peak(run.precision);
  return cost;
}

/// @brief Cost of one step, with the constants of the cluster's chips.
[[nodiscard]] constexpr StepCost evaluate(const ModelSpec& model, const ClusterSpec& cluster,
                                          const RunSpec& run, const PlanConfiguration& plan) {
  return evaluate(model, cluster, run, plan, calibration_of(cluster.chip.generation));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
