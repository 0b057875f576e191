// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What one step of a configuration costs: memory, time and its parts, in well under a microsecond.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/calibration.hpp>
#include <shardwright/plan/cluster_spec.hpp>
#include <shardwright/plan/compute_time.hpp>
#include <shardwright/plan/memory_cost.hpp>
#include <shardwright/plan/model_size.hpp>
#include <shardwright/plan/model_spec.hpp>
#include <shardwright/plan/pipeline_shape.hpp>
#include <shardwright/plan/plan_configuration.hpp>
#include <shardwright/plan/plan_problem.hpp>
#include <shardwright/plan/run_spec.hpp>
#include <shardwright/plan/stage_pass.hpp>
#include <shardwright/plan/step_cost.hpp>
#include <shardwright/plan/traffic_cost.hpp>

#include <algorithm>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// What recomputation adds to the operations of a step. A full one is a forward pass of the layers; a
/// selective one counts the scores' 12 s h per token and layer again, as arXiv 2205.05198, appendix A, does,
/// although it computes a third of that.
[[nodiscard]] constexpr double recomputed_flops(const ModelSpec& model, const RunSpec& run, Recomputation how,
                                                double flops, FlopsConvention convention) noexcept {
  const double tokens = static_cast<double>(run.tokens());
  if (how == Recomputation::none)
    return 0;
  if (how == Recomputation::full)
    return flops / 3 - tokens * 2 * model.hidden * model.vocabulary;
  return 3 * tokens * model.layers * attention_flops_per_pair(model) *
         attended_tokens(model, static_cast<double>(run.sequence_length), convention);
}

/// Doublings of eight chips, a part of a doubling counted in proportion.
[[nodiscard]] constexpr double doublings_above_eight(double chips) noexcept {
  double doublings = 0;
  for (; chips >= 16; chips /= 2)
    ++doublings;
  return chips > 8 ? doublings + chips / 8 - 1 : doublings;
}

} // namespace detail

/// @brief Cost of one step.
///
/// Time is m microbatches of the heaviest stage, the bubble of the schedule, what communication is exposed,
/// the optimizer, and jitter; docs/explanation/planner.md derives every term. Nothing is allocated.
[[nodiscard]] constexpr StepCost evaluate(const ModelSpec& model, const ClusterSpec& cluster,
                                          const RunSpec& run, const PlanConfiguration& plan,
                                          const Calibration& calibration) {
  StepCost cost;
  cost.problem = problem_of(model, cluster, run, plan);
  if (cost.problem == PlanProblem::empty_input)
    return cost;
  const SharedCalibration& shared = calibration.shared;
  const ModelSize size = size_of(model);
  const double p = plan.pp;
  const double microbatches =
      std::max(1.0, static_cast<double>(run.sequences) / (static_cast<double>(plan.dp) * plan.microbatch));
  const int chunks = chunks_of(plan.schedule, plan.chunks);

  // One microbatch on the mean stage, and on the heaviest: the fullest one, or the last one with the head.
  const RankComputation computed = rank_computation(model, cluster, run, plan, calibration);
  const LayerTraffic traffic = layer_traffic(model, cluster, run, plan, shared);
  const Repeats repeats = repeats_of(plan.recomputation);
  const double expert_share = static_cast<double>(model.expert_layers()) / model.layers;
  const auto stage_of = [&](double layers, double head) {
    return stage_pass({layers * (1 - expert_share), layers * expert_share, head}, computed, traffic, repeats,
                      shared);
  };
  const double layers = model.layers / p;
  const StagePass mean = stage_of(layers, 1 / p);
  double heaviest = mean.seconds();
  if (plan.pp > 1)
    heaviest = std::max({heaviest, stage_of((model.layers + plan.pp - 1) / plan.pp, 0).seconds(),
                         stage_of(model.layers / plan.pp, 1).seconds()});
  const PipelineShape shape =
      pipeline_shape(plan.schedule, plan.pp, static_cast<int>(microbatches), chunks, mean.passes);

  cost.matmul_seconds = microbatches * mean.forward.matmul * (3 + repeats.layer);
  cost.attention_seconds = microbatches * mean.forward.attention * (3.5 + repeats.attention);
  cost.elementwise_seconds = microbatches * mean.forward.elementwise * (3 + repeats.layer);
  cost.overhead_seconds = microbatches * mean.overhead;
  cost.imbalance_seconds = microbatches * (heaviest - mean.seconds());
  cost.bubble_seconds = shape.bubble;
  cost.passes = mean.passes;

  const double forwards = microbatches * (2 + repeats.layer); // a backward pass sends as much as one
  cost.traffic[static_cast<std::size_t>(Traffic::tensor)] = forwards * mean.traffic.tensor;
  cost.traffic[static_cast<std::size_t>(Traffic::context)] = forwards * mean.traffic.context;
  cost.traffic[static_cast<std::size_t>(Traffic::expert)] = forwards * mean.traffic.expert;
  const RankParameters held = rank_parameters(model, size, plan);
  cost.traffic[static_cast<std::size_t>(Traffic::pipeline)] =
      send_traffic(model, cluster, run, plan, shared, microbatches, chunks, shape.hops);
  cost.traffic[static_cast<std::size_t>(Traffic::data)] =
      data_traffic(cluster, run, plan, held, shared, microbatches, mean.seconds());
  for (const TrafficCost& one : cost.traffic)
    cost.overhead_seconds += one.hidden_seconds() * shared.contention;

  const bool shards_states = plan.zero_stage >= 1;
  const double updated = held.dense / (shards_states ? static_cast<double>(plan.dp) * plan.cp : 1) +
                         held.experts / (shards_states ? static_cast<double>(plan.expert_dp()) : 1);
  cost.optimizer_seconds = updated * shared.optimizer_bytes / cluster.chip.memory_bandwidth;

  cost.chips = static_cast<double>(plan.chips());
  const double sum = cost.matmul_seconds + cost.attention_seconds + cost.elementwise_seconds +
                     cost.overhead_seconds + cost.imbalance_seconds + cost.bubble_seconds +
                     cost.exposed_seconds() + cost.optimizer_seconds;
  cost.straggler_seconds = sum * shared.jitter * detail::doublings_above_eight(cost.chips);
  cost.step_seconds = sum + cost.straggler_seconds;
  cost.least_seconds = cost.step_seconds * calibration.least_ratio;
  cost.most_seconds = cost.step_seconds * calibration.most_ratio;

  cost.memory = memory_cost(model, size, run, plan, shape.kept);
  if (cost.problem == PlanProblem::none && cost.memory.total() > cluster.chip.memory_bytes)
    cost.problem = PlanProblem::out_of_memory;

  cost.tokens = static_cast<double>(run.tokens());
  const auto flops = [&](FlopsConvention convention) {
    return cost.tokens * flops_per_token(model, size, static_cast<double>(run.sequence_length), convention);
  };
  cost.causal_flops = flops(FlopsConvention::causal);
  cost.non_causal_flops = flops(FlopsConvention::non_causal);
  cost.causal_recomputed =
      detail::recomputed_flops(model, run, plan.recomputation, cost.causal_flops, FlopsConvention::causal);
  cost.non_causal_recomputed = detail::recomputed_flops(model, run, plan.recomputation, cost.non_causal_flops,
                                                        FlopsConvention::non_causal);
  cost.peak_flops = cluster.chip.peak(run.precision);
  return cost;
}

/// @brief Cost of one step, with the constants of the cluster's chips.
[[nodiscard]] constexpr StepCost evaluate(const ModelSpec& model, const ClusterSpec& cluster,
                                          const RunSpec& run, const PlanConfiguration& plan) {
  return evaluate(model, cluster, run, plan, calibration_of(cluster.chip.generation));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
