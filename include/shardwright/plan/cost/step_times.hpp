// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The time of a step from its parts, each of which may be a bound instead, for `evaluate` and for the
/// pruning of a search.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/compute_time.hpp>
#include <shardwright/plan/cost/imbalance.hpp>
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
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Microbatches that the fullest rank keeps in flight.
[[nodiscard]] constexpr double kept_microbatches(const RunSpec& run, const PlanConfiguration& plan) {
  return pipeline_shape(plan.schedule, plan.pp, static_cast<int>(microbatches_of(run, plan)),
                        chunks_of(plan.schedule, plan.chunks), {})
      .kept;
}

/// The time that a schedule adds to the passes of its ranks.
struct ScheduleTime {
  double bubble_seconds = 0;
  double imbalance_seconds = 0;
  TrafficCost sends{};
};

/// @param heaviest of `heaviest_seconds`
[[nodiscard]] constexpr ScheduleTime schedule_time(const ModelSpec& model, const RunSpec& run,
                                                   const PlanConfiguration& plan, const PlanLinks& links,
                                                   const SharedCalibration& shared, const PassCosts& passes,
                                                   const StageSeconds& stages, double heaviest) {
  const double microbatches = microbatches_of(run, plan);
  const int chunks = chunks_of(plan.schedule, plan.chunks);
  const auto each = static_cast<int>(microbatches);
  const PipelineShape shape = pipeline_shape(plan.schedule, plan.pp, each, chunks, passes);
  const double imbalance = imbalance_seconds(model, plan, each, passes, stages, heaviest, shape.bubble);
  ScheduleTime out{shape.bubble, imbalance,
                   send_traffic(model, run, plan, links, shared, microbatches, chunks, shape.hops)};
  // While ranks wait for the heaviest stage, they also wait for the sends between them, except while the
  // pipeline fills and drains; with the interleaved schedule, ranks wait between their own stages, unless
  // groups have more microbatches than there are ranks.
  const bool turns = takes_chunks(plan.schedule) && (each < plan.pp || each % plan.pp == 0);
  if (shape.hops > 0 && !turns) {
    const double ways = plan.schedule == PlanSchedule::zb_v ? 3.5 : 2; // along the pipeline
    const double ends = std::min(1.0, ways * (plan.pp - 1) / shape.hops);
    out.sends.exposed_seconds =
        std::max(ends * out.sends.exposed_seconds, out.sends.exposed_seconds - imbalance);
  }
  return out;
}

/// The time that data parallelism adds: gathers and reductions, and the optimizer on the parameters
/// that a rank updates, with the casts of all that it holds to 8 or 4 bits, which microbatches share, and
/// what a step takes besides.
struct ShardingTime {
  DataTraffic data{};
  double optimizer_seconds = 0;
};

[[nodiscard]] constexpr ShardingTime sharding_time(const ClusterSpec& cluster, const RunSpec& run,
                                                   const PlanConfiguration& plan, const RankParameters& held,
                                                   const PlanLinks& links, const SharedCalibration& shared,
                                                   const BesideSeconds& beside) noexcept {
  const bool shards = plan.zero_stage >= 1;
  const double updated = held.dense / (shards ? plan.data_shards() : 1) +
                         held.experts / (shards ? static_cast<double>(plan.expert_dp()) : 1);
  const bool casts = run.precision == Precision::fp8 || run.precision == Precision::fp4;
  const bool before = run.optimizer.gathered_bytes > 0 && run.optimizer.gathered_bytes < 2; // the gather
  const double cast = casts ? shared.weight_cast_bytes * (before ? updated : held.total()) : 0;
  return {data_traffic(cluster, run, plan, held, links, shared, microbatches_of(run, plan), beside),
          shared.step_seconds + (updated * shared.optimizer_bytes + cast) / cluster.chip.memory_bandwidth};
}

/// The number of times that eight chips are doubled.
[[nodiscard]] constexpr double doublings_above_eight(std::int64_t chips) noexcept {
  return doublings(std::max(1.0, static_cast<double>(chips) / 8));
}

/// One microbatch on the mean stage, and its time on others.
struct StagesOfStep {
  StageLayers layers{}; ///< Of the mean stage.
  StagePass mean{};
  StageSeconds seconds{};
};

/// The heaviest stage is the fullest one, or the last one with the head.
[[nodiscard]] constexpr StagesOfStep stages_of_step(const ModelSpec& model, const PlanConfiguration& plan,
                                                    const LayerPasses& each) noexcept {
  const int all = model.stacked_layers();
  const double expert_share = static_cast<double>(model.expert_layers()) / all;
  const double dense_share = static_cast<double>(model.dense_layers()) / all;
  const auto holding = [&](double layers, double head) {
    return StageLayers{layers * dense_share, layers * expert_share, head};
  };
  const double p = plan.pp;
  StagesOfStep out{.layers = holding(all / p, 1 / p)};
  out.mean = stage_pass(out.layers, each);
  out.seconds.mean = out.mean.passes.sum();
  if (plan.pp <= 1)
    return out;
  out.seconds.of_fullest = stage_pass(holding((all + plan.pp - 1) / plan.pp, 0), each).passes;
  out.seconds.of_last = stage_pass(holding(all / plan.pp, 1), each).passes;
  if (all % plan.pp != 0 && chunks_of(plan.schedule, plan.chunks) > 1 && !ends_are_layers(model, plan))
    out.seconds.beside_last = out.seconds.fullest() / (all / plan.pp + 1) * (1 - 1.0 / plan.chunks);
  return out;
}

/// Fills the times of a step: m microbatches of the heaviest stage, the bubble, the exposed communication,
/// the optimizer, and jitter.
///
/// The time grows with each part, so bounds of the parts give a bound of the time.
/// @param form the use that the schedule makes of passes: `pass_form`, or the one with the least time
/// @param of_schedule makes the ScheduleTime out of a stage's passes and the seconds of stages
/// @param of_sharding makes the ShardingTime out of the BesideSeconds of one microbatch
template <class OfSchedule, class OfSharding>
constexpr void add_times(StepCost& cost, const ModelSpec& model, const RunSpec& run,
                         const PlanConfiguration& plan, const SharedCalibration& shared,
                         const RankComputation& computed, const LayerTraffic& traffic, const PassForm& form,
                         const OfSchedule& of_schedule, const OfSharding& of_sharding) {
  const double microbatches = microbatches_of(run, plan);
  const LayerPasses each_layer(model, computed, traffic, repeats_of(run, plan), shared, form);
  StagesOfStep stages = stages_of_step(model, plan, each_layer);
  const StagePass& mean = stages.mean;
  cost.matmul_seconds = microbatches * (3 * mean.forward.matmul + mean.again.matmul);
  cost.attention_seconds = microbatches * (3.5 * mean.forward.attention + mean.again.attention);
  cost.elementwise_seconds = microbatches * (3 * mean.forward.elementwise + mean.again.elementwise);
  const ShardingTime sharded = of_sharding(BesideSeconds{mean.passes.sum(), mean.backward()});
  const TrafficCost& each = sharded.data.each;
  const double reducing = each.exposed_seconds + shared.contention * each.hidden_seconds();
  cost.passes = mean.passes;
  cost.passes.input_gradient += reducing;
  stages.seconds.mean += reducing;
  stages.seconds.reduction = reducing;
  const ScheduleTime scheduled = of_schedule(cost.passes, stages.seconds);
  cost.bubble_seconds = scheduled.bubble_seconds;
  cost.imbalance_seconds = scheduled.imbalance_seconds;
  cost.optimizer_seconds = sharded.optimizer_seconds;
  cost.reduction = each;

  const StageTraffic once = stage_traffic(stages.layers, each_layer);
  const auto both = [&](const TrafficCost& forward, const TrafficCost& returned) {
    TrafficCost sum = microbatches * forward;
    sum += microbatches * returned;
    return sum;
  };
  cost.traffic = {both(once.forward.tensor, once.returned.tensor),
                  both(once.forward.context, once.returned.context),
                  both(once.forward.expert, once.returned.expert), scheduled.sends, microbatches * each};
  cost.traffic[static_cast<std::size_t>(Traffic::data)] += sharded.data.apart;
  cost.overhead_seconds = microbatches * mean.overhead;
  for (const TrafficCost& one : cost.traffic)
    cost.overhead_seconds += one.hidden_seconds() * shared.contention;
  // Traffic that takes longer than the pass beside it is exposed, divided among the kinds of traffic inside
  // layers in proportion to their hidden time.
  if (const double waiting = microbatches * (mean.waiting.forward + mean.waiting.input_gradient); waiting > 0)
    for (const Traffic kind : {Traffic::tensor, Traffic::context, Traffic::expert}) {
      TrafficCost& one = cost.traffic[static_cast<std::size_t>(kind)];
      one.exposed_seconds += waiting * one.hidden_seconds() / (microbatches * mean.hidden);
    }

  cost.chips = static_cast<double>(plan.chips());
  const double sum = cost.matmul_seconds + cost.attention_seconds + cost.elementwise_seconds +
                     cost.overhead_seconds + cost.imbalance_seconds + cost.bubble_seconds +
                     cost.exposed_seconds() + cost.optimizer_seconds;
  cost.straggler_seconds = sum * shared.jitter * doublings_above_eight(plan.chips());
  cost.step_seconds = sum + cost.straggler_seconds;
}

/// The same for a plan that leaves no choice open.
/// @param held the parameters of the rank that has the most
constexpr void add_times(StepCost& cost, const ModelSpec& model, const ClusterSpec& cluster,
                         const RunSpec& run, const PlanConfiguration& plan, const SharedCalibration& shared,
                         const RankComputation& computed, const PlanLinks& links,
                         const RankParameters& held) {
  add_times(
      cost, model, run, plan, shared, computed, layer_traffic(model, cluster, run, plan, links, shared),
      pass_form(plan, microbatches_of(run, plan)),
      [&](const PassCosts& passes, const StageSeconds& stages) {
        return schedule_time(model, run, plan, links, shared, passes, stages,
                             heaviest_seconds(model, run, plan, stages));
      },
      [&](const BesideSeconds& beside) {
        return sharding_time(cluster, run, plan, held, links, shared, beside);
      });
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
