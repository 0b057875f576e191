// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The time of a step from its parts, each of which may be a bound instead: what `evaluate` sums up
/// and what a search prunes by.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/compute_time.hpp>
#include <shardwright/plan/cost/links.hpp>
#include <shardwright/plan/cost/memory.hpp>
#include <shardwright/plan/cost/pipeline_shape.hpp>
#include <shardwright/plan/cost/stage_pass.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/cost/traffic.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <algorithm>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Microbatches of a step on every data-parallel rank.
[[nodiscard]] constexpr double microbatches_of(const RunSpec& run, const PlanConfiguration& plan) noexcept {
  return std::max(1.0, static_cast<double>(run.sequences) / (static_cast<double>(plan.dp) * plan.microbatch));
}

namespace detail {

/// Microbatches that the fullest rank keeps in flight.
[[nodiscard]] constexpr double kept_microbatches(const RunSpec& run, const PlanConfiguration& plan) {
  return pipeline_shape(plan.schedule, plan.pp, static_cast<int>(microbatches_of(run, plan)),
                        chunks_of(plan.schedule, plan.chunks), {})
      .kept;
}

/// Seconds of one microbatch on a stage: in the mean, on the fullest, on the last with the head.
struct StageSeconds {
  double mean = 0, fullest = 0, last = 0;
};

} // namespace detail

/// @brief Time that the other stages wait for the heaviest. The first microbatch passes all stages, so that
/// the others wait for it; DualPipe runs one half of the microbatches through the last stage of each rank,
/// one through its first.
[[nodiscard]] constexpr double imbalance_seconds(const RunSpec& run, const PlanConfiguration& plan,
                                                 const detail::StageSeconds& stages) noexcept {
  if (plan.pp <= 1)
    return 0;
  const double last =
      plan.schedule == PlanSchedule::dual_pipe ? (stages.last + stages.fullest) / 2 : stages.last;
  return (microbatches_of(run, plan) - 1) * (std::max({stages.mean, stages.fullest, last}) - stages.mean);
}

namespace detail {

/// The time that a schedule adds to the passes of its ranks.
struct ScheduleTime {
  double bubble_seconds = 0;
  double imbalance_seconds = 0;
  TrafficCost sends{};
};

[[nodiscard]] constexpr ScheduleTime schedule_time(const ModelSpec& model, const RunSpec& run,
                                                   const PlanConfiguration& plan, const PlanLinks& links,
                                                   const SharedCalibration& shared, const PassCosts& passes,
                                                   const StageSeconds& stages) {
  const double microbatches = microbatches_of(run, plan);
  const int chunks = chunks_of(plan.schedule, plan.chunks);
  const PipelineShape shape =
      pipeline_shape(plan.schedule, plan.pp, static_cast<int>(microbatches), chunks, passes);
  return {shape.bubble, imbalance_seconds(run, plan, stages),
          send_traffic(model, run, plan, links, shared, microbatches, chunks, shape.hops)};
}

/// The time that data parallelism adds: gathers and reductions, and the optimizer on the parameters
/// that a rank updates.
struct ShardingTime {
  TrafficCost data{};
  double optimizer_seconds = 0;
};

[[nodiscard]] constexpr ShardingTime sharding_time(const ClusterSpec& cluster, const RunSpec& run,
                                                   const PlanConfiguration& plan, const RankParameters& held,
                                                   const PlanLinks& links, const SharedCalibration& shared,
                                                   double pass_seconds) noexcept {
  const bool shards = plan.zero_stage >= 1;
  const double updated = held.dense / (shards ? static_cast<double>(plan.dp) * plan.cp : 1) +
                         held.experts / (shards ? static_cast<double>(plan.expert_dp()) : 1);
  return {data_traffic(run, plan, held, links, shared, microbatches_of(run, plan), pass_seconds),
          updated * shared.optimizer_bytes / cluster.chip.memory_bandwidth};
}

/// Doublings of eight chips, a part of a doubling counted in proportion.
[[nodiscard]] constexpr double doublings_above_eight(double chips) noexcept {
  double doublings = 0;
  for (; chips >= 16; chips /= 2)
    ++doublings;
  return chips > 8 ? doublings + chips / 8 - 1 : doublings;
}

/// Fills the times of a step: m microbatches of the heaviest stage, the bubble, what communication is
/// exposed, the optimizer, and jitter.
///
/// The time grows with each part, so that parts which are bounds make a bound of the time.
/// @param of_schedule makes the ScheduleTime out of a stage's passes and the seconds of stages
/// @param of_sharding makes the ShardingTime out of the seconds of one microbatch
template <class OfSchedule, class OfSharding>
constexpr void add_times(StepCost& cost, const ModelSpec& model, const RunSpec& run,
                         const PlanConfiguration& plan, const SharedCalibration& shared,
                         const RankComputation& computed, const LayerTraffic& traffic,
                         const OfSchedule& of_schedule, const OfSharding& of_sharding) {
  const double p = plan.pp, microbatches = microbatches_of(run, plan);
  const Repeats repeats = repeats_of(plan.recomputation);
  const double expert_share = static_cast<double>(model.expert_layers()) / model.layers;
  const auto stage_of = [&](double layers, double head) {
    return stage_pass({layers * (1 - expert_share), layers * expert_share, head}, computed, traffic, repeats,
                      shared);
  };
  // One microbatch on the mean stage, and on the heaviest: the fullest one, or the last one with the head.
  const double layers = model.layers / p;
  const StagePass mean = stage_of(layers, 1 / p);
  StageSeconds stages{mean.seconds(), 0, 0};
  if (plan.pp > 1) {
    stages.fullest = stage_of((model.layers + plan.pp - 1) / plan.pp, 0).seconds();
    stages.last = stage_of(model.layers / plan.pp, 1).seconds();
  }
  cost.matmul_seconds = microbatches * mean.forward.matmul * (3 + repeats.layer);
  cost.attention_seconds = microbatches * mean.forward.attention * (3.5 + repeats.attention);
  cost.elementwise_seconds = microbatches * mean.forward.elementwise * (3 + repeats.layer);
  cost.overhead_seconds = microbatches * mean.overhead;
  cost.passes = mean.passes;

  const double forwards = microbatches * (2 + repeats.layer); // a backward pass sends as much as one
  cost.traffic[static_cast<std::size_t>(Traffic::tensor)] = forwards * mean.traffic.tensor;
  cost.traffic[static_cast<std::size_t>(Traffic::context)] = forwards * mean.traffic.context;
  cost.traffic[static_cast<std::size_t>(Traffic::expert)] = forwards * mean.traffic.expert;
  const ScheduleTime scheduled = of_schedule(mean.passes, stages);
  const ShardingTime sharded = of_sharding(mean.seconds());
  cost.bubble_seconds = scheduled.bubble_seconds;
  cost.imbalance_seconds = scheduled.imbalance_seconds;
  cost.traffic[static_cast<std::size_t>(Traffic::pipeline)] = scheduled.sends;
  cost.traffic[static_cast<std::size_t>(Traffic::data)] = sharded.data;
  cost.optimizer_seconds = sharded.optimizer_seconds;
  for (const TrafficCost& one : cost.traffic)
    cost.overhead_seconds += one.hidden_seconds() * shared.contention;

  cost.chips = static_cast<double>(plan.chips());
  const double sum = cost.matmul_seconds + cost.attention_seconds + cost.elementwise_seconds +
                     cost.overhead_seconds + cost.imbalance_seconds + cost.bubble_seconds +
                     cost.exposed_seconds() + cost.optimizer_seconds;
  cost.straggler_seconds = sum * shared.jitter * doublings_above_eight(cost.chips);
  cost.step_seconds = sum + cost.straggler_seconds;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
