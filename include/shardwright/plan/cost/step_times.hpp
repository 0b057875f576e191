// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The time of a step from its parts, each of which may be a bound instead, for `evaluate` and for the
/// pruning of a search.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/compute_time.hpp>
#include <shardwright/plan/cost/links.hpp>
#include <shardwright/plan/cost/memory.hpp>
#include <shardwright/plan/cost/pass_chains.hpp>
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

/// Seconds of one microbatch on a stage: on average, on the fullest, on the last with the head; and of the
/// weight gradient of the heaviest.
struct StageSeconds {
  double mean = 0, fullest = 0, last = 0, weight = 0;
  double beside_last =
      0; ///< Time by which stages of the rank with the head are shorter than those of the fullest ranks.
  PassCosts of_fullest{0, 0, 0}, of_last{0, 0, 0}; ///< Without `reduction`.
  double reduction = 0; ///< Of the gradients, after each microbatch's input gradients.

  constexpr void add_reduction(double seconds) noexcept {
    mean += seconds;
    fullest += seconds;
    last += seconds;
    reduction += seconds;
  }
};

/// Fraction of the ranks that have one more layer than the others.
[[nodiscard]] constexpr double uneven_share(const ModelSpec& model, const PlanConfiguration& plan) noexcept {
  return static_cast<double>(model.stacked_layers() % plan.pp) / plan.pp;
}

/// Microbatches whose extra time on the last rank with one more layer does not lengthen the step, because the
/// others wait at that time, too: in 1F1B, before the first backward pass reaches that rank and after its
/// last forward pass. The second rank is the first to get one more layer; the first and the last rank are the
/// last.
[[nodiscard]] constexpr double idle_microbatches(const ModelSpec& model,
                                                 const PlanConfiguration& plan) noexcept {
  const int more = model.stacked_layers() % plan.pp;
  const bool waits = plan.schedule == PlanSchedule::one_f_one_b || plan.schedule == PlanSchedule::zb_h1 ||
                     takes_chunks(plan.schedule);
  return more == 0 || !waits ? 0 : plan.pp - 1 - std::min(more, plan.pp - 2);
}

/// Returns whether interleaved stages have the same number of layers if the embedding and the head each
/// count as one. Programs then take the layer from the first and the last stage, and no stage waits for
/// another of its rank; else a rank's layers are taken as spread evenly over its stages.
[[nodiscard]] constexpr bool ends_are_layers(const ModelSpec& model, const PlanConfiguration& plan) noexcept {
  const int stages = plan.pp * plan.chunks;
  return takes_chunks(plan.schedule) && model.stacked_layers() % stages == stages - 2;
}

/// Extra time of a stage with one more layer than others, compared with the mean stage.
[[nodiscard]] constexpr double fullest_seconds(const ModelSpec& model, const PlanConfiguration& plan,
                                               double microbatches, double longer) noexcept {
  const double all = microbatches - 1;
  return (all - std::min(all, idle_microbatches(model, plan))) * longer;
}

/// Time by which the heaviest stage works longer than the mean one. DualPipe runs one half of the
/// microbatches through the last stage of each rank and one half through its first; both have one more layer
/// only if half of all ranks do. In the interleaved schedule, the other stages of the rank with the head wait
/// for the fullest stages of their chunks.
[[nodiscard]] constexpr double heaviest_seconds(const ModelSpec& model, const RunSpec& run,
                                                const PlanConfiguration& plan,
                                                const StageSeconds& stages) noexcept {
  if (plan.pp <= 1)
    return 0;
  const double microbatches = microbatches_of(run, plan);
  double last = stages.last, fullest = stages.fullest, of_last = microbatches - 1;
  if (plan.schedule == PlanSchedule::dual_pipe) { // a rank has stages from both ends
    const int layers = model.stacked_layers() / plan.pp, more = model.stacked_layers() % plan.pp;
    const double light = more == 0 ? fullest : fullest * layers / (layers + 1);
    last = (last + light) / 2;
    fullest = 2 * more >= plan.pp - 1 ? fullest : (fullest + light) / 2;
  } else if (takes_chunks(plan.schedule)) {
    const double early = std::min(1.0, of_last / (plan.pp - 1));
    last += early * stages.beside_last;
    of_last += early * (1 - 1.0 / plan.chunks);
  }
  return std::max({0.0, of_last * (last - stages.mean),
                   fullest_seconds(model, plan, microbatches, fullest - stages.mean)});
}

/// Part of a bubble in which the heaviest stage works: if its rank has stages from both ends of the model, or
/// the pipeline fills its bubble with weight gradients. Derived from simulations.
[[nodiscard]] constexpr double filled_bubble(const ModelSpec& model, const PlanConfiguration& plan,
                                             int microbatches, const StageSeconds& stages) noexcept {
  const double p = plan.pp;
  const double uneven = uneven_share(model, plan);
  const bool middle = stages.fullest >= stages.last;
  const double even = middle ? std::min(0.55, 1 - uneven) : 1 - uneven;
  switch (plan.schedule) {
  case PlanSchedule::zb_h2:
    return 0.53 * (1 - uneven) * std::min(1.0, microbatches / (2 * p));
  case PlanSchedule::dual_pipe:
    return (0.28 + 1.1 / p) * even;
  case PlanSchedule::dual_pipe_v:
    return (0.7 - 0.5 / p) * even;
  default:
    return 0;
  }
}

/// Time by which the last stage delays a pipeline that fills its bubble with weight gradients, if it works
/// `longer` on a microbatch than the mean stage, `weight` of that on its weight gradient: either it never
/// waits from its first input on, or its weight gradients fit beside the gradients that are on their way
/// back.
[[nodiscard]] constexpr double held_up_by_last(const PlanConfiguration& plan, int microbatches,
                                               const PassCosts& passes, double longer, double weight,
                                               double bubble) noexcept {
  const double delayed = plan.schedule == PlanSchedule::zb_h1 ? std::min(plan.pp, microbatches) - 1
                                                              : std::min(microbatches, 2 * plan.pp - 1) - 1;
  return std::max(microbatches * longer + (plan.pp - 1) * passes.forward - bubble,
                  (microbatches - 1) * longer - delayed * weight);
}

/// Seconds that the passes of ZB-V or DualPipe take at least, however even their sums are.
[[nodiscard]] constexpr double chain_seconds(const ModelSpec& model, const PlanConfiguration& plan,
                                             int microbatches, const StageSeconds& stages) noexcept {
  if (stages.of_last.forward <= 0) // a bound, for which only sums are known
    return 0;
  const bool v = plan.schedule == PlanSchedule::zb_v; // rank 0 has the head, else the last one
  const int layers = model.stacked_layers() / plan.pp, more = model.stacked_layers() % plan.pp;
  const double part = v ? 0.5 : 1; // of a rank's layers
  const auto stage_of = [&](double share) {
    const PassCosts& rank = stages.of_fullest;
    return PassCosts{rank.forward * share, rank.input_gradient * share + stages.reduction * part,
                     rank.weight_gradient * share};
  };
  const PassCosts longer = stage_of(part),
                  shorter = more == 0 ? longer : stage_of(part * layers / (layers + 1));
  PassCosts last = stages.of_last;
  last.input_gradient += stages.reduction;
  if (v) {
    last.forward -= shorter.forward;
    last.input_gradient -= shorter.input_gradient;
    last.weight_gradient -= shorter.weight_gradient;
  }
  const bool first_is_longer = !v && more == plan.pp - 1;
  const UnevenStages all{
      plan.pp, microbatches, more == 0 ? plan.pp - 1 : more, first_is_longer ? longer : shorter, last,
      longer,  shorter};
  return v ? ZbVChains{all}.seconds() : DualPipeChain{all}.seconds();
}

/// Time by which a pipeline takes longer than one of even stages if its heaviest stage works `heaviest`
/// longer.
/// @param passes of the mean stage, whose bubble it is
[[nodiscard]] constexpr double imbalance_seconds(const ModelSpec& model, const PlanConfiguration& plan,
                                                 int microbatches, const PassCosts& passes,
                                                 const StageSeconds& stages, double heaviest,
                                                 double bubble) noexcept {
  const bool few = plan.schedule == PlanSchedule::zb_h1,
             one_way = few || plan.schedule == PlanSchedule::zb_h2;
  if (plan.pp <= 1)
    return 0;
  double least = 0;
  if (plan.schedule == PlanSchedule::zb_v || plan.schedule == PlanSchedule::dual_pipe)
    least =
        std::max(0.0, chain_seconds(model, plan, microbatches, stages) - microbatches * stages.mean - bubble);
  if (plan.schedule == PlanSchedule::zb_v) // its heaviest rank waits at most for the whole bubble
    return std::max(least, heaviest - bubble);
  if (heaviest <= 0 && !few)
    return least;
  const int at = std::min(model.stacked_layers() % plan.pp, plan.pp - 2); // the last rank with one more layer
  if (one_way) { // it never waits from its first input on, or its first rank from its first gradient on
    const double longer = stages.fullest - stages.mean, f = passes.forward, w = passes.weight_gradient;
    const double later = passes.input_gradient + w;
    least = microbatches * longer + at * f - bubble;
    if (few && microbatches < plan.pp && at > 0)
      least = std::max(least, (microbatches - 1) * (w - f) + microbatches * longer * later / (f + later) -
                                  passes.input_gradient);
    if (stages.last > stages.fullest)
      return std::max({0.0, least,
                       held_up_by_last(plan, microbatches, passes, stages.last - stages.mean,
                                       stages.weight - w, bubble)});
  }
  double waiting = heaviest;
  // The heaviest stage waits for the passes of the others, and has more weight gradients to fill that time.
  if (one_way || plan.schedule == PlanSchedule::dual_pipe || plan.schedule == PlanSchedule::interleaved_zb) {
    PassCosts filled = passes;
    filled.weight_gradient = std::max(passes.weight_gradient, stages.weight);
    const int chunks = chunks_of(plan.schedule, plan.chunks);
    const double left =
        few ? bubble - std::min(at, microbatches - 1) * (filled.weight_gradient - passes.weight_gradient)
            : std::max(0.0, pipeline_shape(plan.schedule, plan.pp, microbatches, chunks, filled).bubble);
    waiting += left - bubble;
    bubble = left;
  }
  return std::max({0.0, least, waiting - filled_bubble(model, plan, microbatches, stages) * bubble});
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
  return {data_traffic(run, plan, held, links, shared, microbatches_of(run, plan), beside),
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
  out.seconds.mean = out.mean.seconds();
  if (plan.pp <= 1)
    return out;
  const StagePass fullest = stage_pass(holding((all + plan.pp - 1) / plan.pp, 0), each);
  const StagePass last = stage_pass(holding(all / plan.pp, 1), each);
  StageSeconds& seconds = out.seconds;
  seconds.fullest = fullest.seconds();
  seconds.last = last.seconds();
  seconds.of_fullest = fullest.passes;
  seconds.of_last = last.passes;
  if (all % plan.pp != 0 && chunks_of(plan.schedule, plan.chunks) > 1 && !ends_are_layers(model, plan))
    seconds.beside_last = seconds.fullest / (all / plan.pp + 1) * (1 - 1.0 / plan.chunks);
  seconds.weight = (seconds.last > seconds.fullest ? last : fullest).passes.weight_gradient;
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
  const LayerPasses each_layer(model, computed, traffic, repeats_of(plan), shared, form);
  StagesOfStep stages = stages_of_step(model, plan, each_layer);
  const StagePass& mean = stages.mean;
  cost.matmul_seconds = microbatches * (3 * mean.forward.matmul + mean.again.matmul);
  cost.attention_seconds = microbatches * (3.5 * mean.forward.attention + mean.again.attention);
  cost.elementwise_seconds = microbatches * (3 * mean.forward.elementwise + mean.again.elementwise);
  const ShardingTime sharded = of_sharding(BesideSeconds{mean.seconds(), mean.backward()});
  const TrafficCost& each = sharded.data.each;
  const double reducing = each.exposed_seconds + shared.contention * each.hidden_seconds();
  cost.passes = mean.passes;
  cost.passes.input_gradient += reducing;
  stages.seconds.add_reduction(reducing);
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
