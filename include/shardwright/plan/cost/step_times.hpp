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

/// Seconds of one microbatch on a stage: in the mean, on the fullest, on the last with the head; and of the
/// weight gradient of the heaviest.
struct StageSeconds {
  double mean = 0, fullest = 0, last = 0, weight = 0;
  double beside_last = 0; ///< That stages of the rank with the head take less than the fullest ranks' do.
};

/// Microbatches of which the last rank with a layer more works what it works longer while others wait, too:
/// in 1F1B, before the first backward pass comes back to it and after the last forward one. Ranks from the
/// second on have one more, the first and the last of all only at last.
[[nodiscard]] constexpr double idle_microbatches(const ModelSpec& model,
                                                 const PlanConfiguration& plan) noexcept {
  const int more = model.layers % plan.pp;
  const bool waits = plan.schedule == PlanSchedule::one_f_one_b || plan.schedule == PlanSchedule::zb_h1 ||
                     plan.schedule == PlanSchedule::interleaved;
  return more == 0 || !waits ? 0 : plan.pp - 1 - std::min(more, plan.pp - 2);
}

/// Time that the heaviest stage works longer than the mean one. DualPipe runs one half of the
/// microbatches through the last stage of each rank, one through its first, of which both have a layer more
/// only where half of all do; stages that a rank of the interleaved schedule has beside the one with the head
/// wait for the fullest of theirs.
[[nodiscard]] constexpr double heaviest_seconds(const ModelSpec& model, const RunSpec& run,
                                                const PlanConfiguration& plan,
                                                const StageSeconds& stages) noexcept {
  if (plan.pp <= 1)
    return 0;
  double last = stages.last, fullest = stages.fullest;
  if (plan.schedule == PlanSchedule::dual_pipe) { // a rank has stages from both ends
    const int layers = model.layers / plan.pp, more = model.layers % plan.pp;
    const double light = more == 0 ? fullest : fullest * layers / (layers + 1);
    last = (last + light) / 2;
    fullest = 2 * more >= plan.pp - 1 ? fullest : (fullest + light) / 2;
  } else if (plan.schedule == PlanSchedule::interleaved) {
    last += stages.beside_last;
  }
  const double all = microbatches_of(run, plan) - 1;
  return std::max({0.0, all * (last - stages.mean),
                   (all - std::min(all, idle_microbatches(model, plan))) * (fullest - stages.mean)});
}

/// Part of a bubble in which the heaviest stage works: where it is the first of a V as well as the last, or
/// in the middle of a pipeline that fills its bubble with weight gradients. Read off simulations.
[[nodiscard]] constexpr double filled_bubble(const PlanConfiguration& plan,
                                             const StageSeconds& stages) noexcept {
  const bool turns = plan.schedule == PlanSchedule::zb_v || plan.schedule == PlanSchedule::dual_pipe ||
                     plan.schedule == PlanSchedule::dual_pipe_v;
  const bool middle = plan.schedule == PlanSchedule::zb_h2 && stages.fullest >= stages.last;
  return turns ? 0.2 + 1.1 / plan.pp : middle ? 0.28 : 0;
}

/// Time that a pipeline takes longer than one of even stages, whose heaviest works so much longer.
/// @param passes of the mean stage, whose bubble it is
[[nodiscard]] constexpr double imbalance_seconds(const PlanConfiguration& plan, int microbatches,
                                                 const PassCosts& passes, const StageSeconds& stages,
                                                 double heaviest, double bubble) noexcept {
  if (heaviest <= 0)
    return 0;
  double waiting = heaviest;
  // The heaviest stage waits for the passes of the others, and has more weight gradients to fill that with.
  if (fills_with_weights(plan.schedule)) {
    PassCosts filled = passes;
    filled.weight_gradient = std::max(passes.weight_gradient, stages.weight);
    const int chunks = chunks_of(plan.schedule, plan.chunks);
    const double left =
        std::max(0.0, pipeline_shape(plan.schedule, plan.pp, microbatches, chunks, filled).bubble);
    waiting += left - bubble;
    bubble = left;
  }
  return std::max(0.0, waiting - filled_bubble(plan, stages) * bubble);
}

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
  const auto each = static_cast<int>(microbatches);
  const PipelineShape shape = pipeline_shape(plan.schedule, plan.pp, each, chunks, passes);
  return {
      shape.bubble,
      imbalance_seconds(plan, each, passes, stages, heaviest_seconds(model, run, plan, stages), shape.bubble),
      send_traffic(model, run, plan, links, shared, microbatches, chunks, shape.hops)};
}

/// The time that data parallelism adds: gathers and reductions, and the optimizer on the parameters
/// that a rank updates.
struct ShardingTime {
  DataTraffic data{};
  double optimizer_seconds = 0;
};

[[nodiscard]] constexpr ShardingTime sharding_time(const ClusterSpec& cluster, const RunSpec& run,
                                                   const PlanConfiguration& plan, const RankParameters& held,
                                                   const PlanLinks& links, const SharedCalibration& shared,
                                                   const BesideSeconds& beside) noexcept {
  const bool shards = plan.zero_stage >= 1;
  const double updated = held.dense / (shards ? static_cast<double>(plan.dp) * plan.cp : 1) +
                         held.experts / (shards ? static_cast<double>(plan.expert_dp()) : 1);
  return {data_traffic(run, plan, held, links, shared, microbatches_of(run, plan), beside),
          updated * shared.optimizer_bytes / cluster.chip.memory_bandwidth};
}

/// Doublings of eight chips, a part of a doubling counted in proportion.
[[nodiscard]] constexpr double doublings_above_eight(double chips) noexcept {
  double doublings = 0;
  for (; chips >= 16; chips /= 2)
    ++doublings;
  return chips > 8 ? doublings + chips / 8 - 1 : doublings;
}

/// Exposes what takes longer than the pass beside it, of the kinds of traffic in proportion to what they
/// hide.
constexpr void expose_waiting(StepCost& cost, const StagePass& stage, double microbatches,
                              const Repeats& repeats) noexcept {
  const double waiting = microbatches * (stage.waiting.forward + stage.waiting.input_gradient);
  if (waiting <= 0)
    return;
  const double hidden = microbatches * (2 + repeats.layer) * stage.traffic.hidden_seconds();
  for (const Traffic kind : {Traffic::tensor, Traffic::context, Traffic::expert}) {
    TrafficCost& one = cost.traffic[static_cast<std::size_t>(kind)];
    one.exposed_seconds += waiting * one.hidden_seconds() / hidden;
  }
}

/// Fills the times of a step: m microbatches of the heaviest stage, the bubble, what communication is
/// exposed, the optimizer, and jitter.
///
/// The time grows with each part, so that parts which are bounds make a bound of the time.
/// @param of_schedule makes the ScheduleTime out of a stage's passes and the seconds of stages
/// @param of_sharding makes the ShardingTime out of the BesideSeconds of one microbatch
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
                      shared, plan.pp > 1 && splits_backward(plan.schedule));
  };
  // One microbatch on the mean stage, and on the heaviest: the fullest one, or the last one with the head.
  const double layers = model.layers / p;
  const StagePass mean = stage_of(layers, 1 / p);
  StageSeconds stages{.mean = mean.seconds()};
  if (plan.pp > 1) {
    const StagePass fullest = stage_of((model.layers + plan.pp - 1) / plan.pp, 0);
    const StagePass last = stage_of(model.layers / plan.pp, 1);
    stages.fullest = fullest.seconds();
    stages.last = last.seconds();
    if (model.layers % plan.pp != 0 && chunks_of(plan.schedule, plan.chunks) > 1)
      stages.beside_last = stages.fullest / (model.layers / plan.pp + 1) * (1 - 1.0 / plan.chunks);
    stages.weight = (stages.last > stages.fullest ? last : fullest).passes.weight_gradient;
  }
  cost.matmul_seconds = microbatches * mean.forward.matmul * (3 + repeats.layer);
  cost.attention_seconds = microbatches * mean.forward.attention * (3.5 + repeats.attention);
  cost.elementwise_seconds = microbatches * mean.forward.elementwise * (3 + repeats.layer);
  cost.overhead_seconds = microbatches * mean.overhead;
  const ShardingTime sharded = of_sharding(BesideSeconds{mean.seconds(), mean.backward(repeats)});
  const TrafficCost& each = sharded.data.each;
  const double reducing = each.exposed_seconds + shared.contention * each.hidden_seconds();
  cost.passes = mean.passes;
  cost.passes.input_gradient += reducing;
  for (double* seconds : {&stages.mean, &stages.fullest, &stages.last})
    *seconds += reducing;

  const double forwards = microbatches * (2 + repeats.layer); // a backward pass sends as much as one
  cost.traffic[static_cast<std::size_t>(Traffic::tensor)] = forwards * mean.traffic.tensor;
  cost.traffic[static_cast<std::size_t>(Traffic::context)] = forwards * mean.traffic.context;
  cost.traffic[static_cast<std::size_t>(Traffic::expert)] = forwards * mean.traffic.expert;
  const ScheduleTime scheduled = of_schedule(cost.passes, stages);
  cost.bubble_seconds = scheduled.bubble_seconds;
  cost.imbalance_seconds = scheduled.imbalance_seconds;
  cost.traffic[static_cast<std::size_t>(Traffic::pipeline)] = scheduled.sends;
  cost.reduction = each;
  TrafficCost& data = cost.traffic[static_cast<std::size_t>(Traffic::data)];
  data = microbatches * each;
  data += sharded.data.apart;
  cost.optimizer_seconds = sharded.optimizer_seconds;
  for (const TrafficCost& one : cost.traffic)
    cost.overhead_seconds += one.hidden_seconds() * shared.contention;
  expose_waiting(cost, mean, microbatches, repeats);

  cost.chips = static_cast<double>(plan.chips());
  const double sum = cost.matmul_seconds + cost.attention_seconds + cost.elementwise_seconds +
                     cost.overhead_seconds + cost.imbalance_seconds + cost.bubble_seconds +
                     cost.exposed_seconds() + cost.optimizer_seconds;
  cost.straggler_seconds = sum * shared.jitter * doublings_above_eight(cost.chips);
  cost.step_seconds = sum + cost.straggler_seconds;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
