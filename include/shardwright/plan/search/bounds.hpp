// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The time of a plan that a search tries, and times that none of several plans can beat.
///
/// `add_times` computes both: for a bound, with the least time that its open choices may add, part by part,
/// so that everything in the cost model holds for the bound, too.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/compute_time.hpp>
#include <shardwright/plan/cost/links.hpp>
#include <shardwright/plan/cost/memory.hpp>
#include <shardwright/plan/cost/model_size.hpp>
#include <shardwright/plan/cost/stage_pass.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/cost/step_times.hpp>
#include <shardwright/plan/cost/traffic.hpp>
#include <shardwright/plan/search/orders.hpp>
#include <shardwright/plan/search/schedules.hpp>
#include <shardwright/plan/search/space.hpp>
#include <shardwright/plan/search/state.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The inputs of a search, and what follows from them for all plans.
struct SearchInput {
  const ModelSpec& model;
  const ClusterSpec& cluster;
  const RunSpec& run;
  SearchSpace space;
  ModelSize size;
  Calibration calibration;

  constexpr SearchInput(const ModelSpec& of_model, const ClusterSpec& on, const RunSpec& of_run,
                        const SearchSpace& within)
      : model(of_model), cluster(on), run(of_run), space(within),
        size(model.heads > 0 ? size_of(model) : ModelSize{}),
        calibration(calibration_of(cluster.chip.generation)) {}

  /// Bytes that a plan may fill.
  [[nodiscard]] constexpr double capacity() const noexcept {
    return cluster.chip.memory_bytes * (1 - space.headroom);
  }
};

/// Which ends of the model a rank of the pipeline holds: one, both, or both of DualPipe, which has two
/// copies.
[[nodiscard]] constexpr std::size_t ends_of(const PlanConfiguration& plan) noexcept {
  return parameter_copies(plan) > 1 ? 2 : has_both_ends(plan) ? 1 : 0;
}

/// The parameters of ranks by `ends_of`, with the axes of a plan.
[[nodiscard]] constexpr std::array<HeldParameters, 3> held_by_ends(const SearchInput& in,
                                                                   PlanConfiguration plan) {
  std::array<HeldParameters, 3> held{};
  for (const PlanSchedule one : {PlanSchedule::one_f_one_b, PlanSchedule::zb_v, PlanSchedule::dual_pipe}) {
    plan.schedule = one;
    held[ends_of(plan)] = HeldParameters(in.model, in.size, plan);
  }
  return held;
}

/// Values that plans with the same tp, cp, ep and microbatch share, whatever their pp and dp.
struct BatchCosts {
  std::array<int, 4> numbers{}; ///< These four.
  RankComputation computed{};
  double floor_seconds = 0; ///< Of `layers_floor`.
};

/// Values that plans with the same extents share, and those with the same microbatch.
struct SearchBranch {
  PlanConfiguration plan{};
  PlanLinks least{}; ///< Links that no order improves.
  SearchOrders orders{};
  SearchSchedules schedules{};               ///< Those allowed with these numbers.
  std::array<int, Divisors::most> batches{}; ///< Divisors of a rank's sequences, in ascending order.
  int batch_count = 0;
  std::array<BatchCosts, Divisors::most> costs{}; ///< By place in `batches`: `costs_of`.
  RankComputation computed{};
  std::array<HeldParameters, 3> held{}; ///< By `ends_of`.

  /// Begins with the numbers of a plan, but its microbatch.
  constexpr void begin(const SearchInput& in, const PlanConfiguration& numbers) {
    plan = numbers;
    held = held_by_ends(in, plan);
    least = least_links(in.cluster, plan, copies_of(in.model, in.run), in.calibration.shared);
    schedules.find(in.model, in.space, plan);
  }
};

/// The shape of a pipeline if a bound is for several microbatches: that of the smallest of them.
struct PipelineFilling {
  PlanConfiguration plan{};
  PassCosts passes{};
  bool own = true; ///< The microbatch is that of the branch.
};

[[nodiscard]] constexpr RankComputation computation_of(const SearchInput& in, PlanConfiguration plan) {
  plan.recomputation = Recompute::selective; // so that it holds for any of them
  return rank_computation(in.model, in.cluster, in.run, plan, in.calibration);
}
/// Memory of a plan with the branch's axes.
[[nodiscard]] constexpr MemoryCost memory_of(const SearchInput& in, const SearchBranch& branch,
                                             const PlanConfiguration& plan) {
  return memory_cost(in.model, in.size, in.run, plan, kept_microbatches(in.run, plan),
                     branch.held[ends_of(plan)], in.cluster.chip.host());
}

/// Whether a plan fits with 1F1B, or with DualPipe. No other schedule may need less than 1F1B: the two ranks
/// of DualPipe with the embedding and the output matrix share the optimizer's states, of which each has at
/// least half as many as one of 1F1B; all else takes no less.
[[nodiscard]] constexpr bool fits(const SearchInput& in, const SearchBranch& branch, PlanConfiguration plan,
                                  bool dual_pipe) {
  const MemoryCost memory = memory_of(in, branch, plan);
  if (memory.total() <= in.capacity())
    return true;
  if (!dual_pipe || memory.total() - memory.optimizer / 2 > in.capacity())
    return false;
  plan.schedule = PlanSchedule::dual_pipe;
  return memory_of(in, branch, plan).total() <= in.capacity();
}

/// Seconds of a step with an order's links.
[[nodiscard]] constexpr double step_seconds_of(const SearchInput& in, const SearchBranch& branch,
                                               const PlanConfiguration& plan, const PlanLinks& links) {
  StepCost cost;
  add_times(cost, in.model, in.cluster, in.run, plan, in.calibration.shared, branch.computed, links,
            branch.held[ends_of(plan)].most());
  return cost.step_seconds;
}

/// The smaller of the two in each part.
[[nodiscard]] constexpr TrafficCost least_of(const TrafficCost& left, const TrafficCost& right) {
  return {std::min(left.bytes, right.bytes), std::min(left.seconds, right.seconds),
          std::min(left.exposed_seconds, right.exposed_seconds)};
}
[[nodiscard]] constexpr LayerTraffic least_of(const LayerTraffic& left, const LayerTraffic& right) {
  return {least_of(left.tensor, right.tensor), least_of(left.context, right.context),
          least_of(left.expert, right.expert)};
}
[[nodiscard]] constexpr ShardingTime least_of(const ShardingTime& left, const ShardingTime& right) {
  return {{least_of(left.data.apart, right.data.apart), least_of(left.data.each, right.data.each)},
          std::min(left.optimizer_seconds, right.optimizer_seconds)};
}

/// The least traffic of a layer with any schedule: of one that pairs passes, and of one that does not.
[[nodiscard]] constexpr LayerTraffic least_traffic(const SearchInput& in, PlanConfiguration plan,
                                                   const PlanLinks& links) {
  const SharedCalibration& shared = in.calibration.shared;
  plan.pp = 2; // stages enough for every schedule
  plan.schedule = PlanSchedule::one_f_one_b;
  const LayerTraffic apart = layer_traffic(in.model, in.cluster, in.run, plan, links, shared);
  if (plan.ep == 1)
    return apart;
  plan.schedule = PlanSchedule::dual_pipe;
  return least_of(apart, layer_traffic(in.model, in.cluster, in.run, plan, links, shared));
}

/// Rounding must not raise a bound above the time that it bounds.
[[nodiscard]] constexpr double below(double seconds) noexcept { return seconds * (1 - 1e-12); }

/// Time of computation and traffic inside the layers, however the other ranks are divided: dp and pp divide
/// sequences and layers.
[[nodiscard]] constexpr double layers_floor(const SearchInput& in, const PlanConfiguration& plan,
                                            const RankComputation& computed, const LayerTraffic& traffic) {
  const SharedCalibration& shared = in.calibration.shared;
  const double dense = in.model.dense_layers(), expert = in.model.expert_layers();
  const StagePass all =
      stage_pass({dense, expert, 1}, {in.model, computed, traffic, {}, shared, {.paired = 1}});
  const auto chips = static_cast<double>(in.cluster.chips());
  const double passes = static_cast<double>(in.run.sequences) * plan.tp * plan.cp / (chips * plan.microbatch);
  return below(passes * all.passes.sum() * (1 + shared.jitter * doublings_above_eight(in.cluster.chips())));
}

/// The costs of one of the branch's microbatches; computed only if those at its place are for other numbers.
[[nodiscard]] constexpr const BatchCosts& costs_of(const SearchInput& in, SearchBranch& branch, int place) {
  PlanConfiguration plan = branch.plan;
  plan.microbatch = branch.batches[static_cast<std::size_t>(place)];
  BatchCosts& costs = branch.costs[static_cast<std::size_t>(place)];
  if (const std::array<int, 4> numbers{plan.tp, plan.cp, plan.ep, plan.microbatch};
      costs.numbers != numbers) {
    costs.numbers = numbers;
    costs.computed = computation_of(in, plan);
    costs.floor_seconds = layers_floor(in, plan, costs.computed, least_traffic(in, plan, branch.least));
  }
  return costs;
}

/// The passes of a stage of average size, with the least traffic.
[[nodiscard]] constexpr StagePass least_pass(const SearchInput& in, const PlanConfiguration& plan,
                                             const RankComputation& computed, const PlanLinks& links) {
  const double dense = static_cast<double>(in.model.dense_layers()) / plan.pp;
  const double expert = static_cast<double>(in.model.expert_layers()) / plan.pp;
  return stage_pass({dense, expert, 1.0 / plan.pp}, {in.model,
                                                     computed,
                                                     least_traffic(in, plan, links),
                                                     repeats_of(in.run, plan),
                                                     in.calibration.shared,
                                                     {.paired = 1}});
}

/// Seconds of a step that no plan of a branch can beat, by the place of its schedule.
using ScheduleBounds = std::array<double, SearchSchedules::most>;

/// The least time that each schedule of a set adds.
///
/// Over several microbatches, the smallest has the least bubble, since more microbatches and shorter passes
/// leave less of it, and the largest the least excess of the heaviest stage. Schedules that fill their bubble
/// with weight gradients may hide that excess.
constexpr void add_schedules(ScheduleBounds& bounds, const SearchInput& in, const SearchBranch& branch,
                             const PlanLinks& links, ScheduleSet of, const PipelineFilling& filling,
                             const PassCosts& passes, const StageSeconds& stages) {
  PlanLinks at_once = links; // a larger microbatch has fewer sends
  if (!filling.own)
    at_once.pipeline.latency_seconds = 0;
  branch.schedules.for_each(branch.plan, of, [&](PlanConfiguration one, int place) {
    const double heaviest =
        fills_with_weights(one.schedule) ? 0 : heaviest_seconds(in.model, in.run, one, stages);
    if (!filling.own)
      one.microbatch = filling.plan.microbatch;
    const ScheduleTime time = schedule_time(in.model, in.run, one, at_once, in.calibration.shared,
                                            filling.own ? passes : filling.passes, {}, heaviest);
    // Ranks of an interleaved schedule wait for more sends if their number divides that of the microbatches.
    const bool either = !filling.own && takes_chunks(one.schedule);
    const double exposed = either ? 0 : time.sends.exposed_seconds;
    const double hidden = either ? time.sends.bytes * at_once.pipeline.per_byte : time.sends.hidden_seconds();
    bounds[static_cast<std::size_t>(place)] =
        time.bubble_seconds + time.imbalance_seconds + exposed + in.calibration.shared.contention * hidden;
  });
}

/// The least time that the branch's stage of ZeRO, or a higher one, adds with the schedules of a set: for
/// each number of copies and place of the ends, because the rank with most parameters may be another one.
[[nodiscard]] constexpr ShardingTime least_sharding_time(const SearchInput& in, const SearchBranch& branch,
                                                         const PlanLinks& links, ScheduleSet of,
                                                         const BesideSeconds& seconds) {
  ShardingTime least;
  unsigned kinds = 0; // that were seen
  branch.schedules.for_each(branch.plan, of, [&](PlanConfiguration one, int) {
    const std::size_t ends = ends_of(one);
    const bool interleaved = takes_chunks(one.schedule);
    const unsigned bit = 1U << (ends + (interleaved ? 3 : 0));
    if ((kinds & bit) != 0)
      return;
    const double microbatches = microbatches_of(in.run, one);
    // More and smaller microbatches hide no more than as many of this size as there are ranks.
    const double most = interleaved ? std::max(1.0, one.pp / microbatches) : 1;
    for (; one.zero_stage <= 3; ++one.zero_stage) {
      if (!allows(in.space.zero_stage, one.zero_stage))
        continue;
      const ShardingTime time = sharding_time(in.cluster, in.run, one, branch.held[ends].most(), links,
                                              in.calibration.shared, {most * seconds.pass, seconds.backward});
      least = kinds == 0 ? time : least_of(least, time);
      kinds |= bit;
    }
  });
  return least;
}

/// The bounds of plans with the schedules of a set, which all pair passes, or none of which does: infinity
/// for all of them if what they share takes more than `limit`. Counts as one evaluation.
constexpr void bound_schedules(ScheduleBounds& bounds, const SearchInput& in, const SearchBranch& branch,
                               const PlanLinks& links, ScheduleSet of, const PipelineFilling& filling,
                               double limit, std::int64_t& evaluations) {
  if (of == 0)
    return;
  const SharedCalibration& shared = in.calibration.shared;
  PlanConfiguration plan = branch.plan;
  // For each kind, the schedule that has each stage on one rank, which takes the least time. The smallest
  // microbatch pairs the greatest share of its passes.
  plan.schedule = (of & branch.schedules.paired) != 0 ? PlanSchedule::dual_pipe_v : PlanSchedule::one_f_one_b;
  PlanConfiguration smallest = plan;
  if (!filling.own)
    smallest.microbatch = filling.plan.microbatch;
  StepCost cost;
  StageSeconds stages;
  ++evaluations;
  add_times(
      cost, in.model, in.run, plan, shared, branch.computed,
      layer_traffic(in.model, in.cluster, in.run, plan, links, shared),
      pass_form(smallest, microbatches_of(in.run, smallest)),
      [&](const PassCosts&, const StageSeconds& of_step) {
        stages = of_step;
        return ScheduleTime{};
      },
      [&](const BesideSeconds& seconds) { return least_sharding_time(in, branch, links, of, seconds); });
  const double stragglers = 1 + shared.jitter * doublings_above_eight(plan.chips());
  const bool open = below(cost.step_seconds) <= limit;
  if (open)
    add_schedules(bounds, in, branch, links, of, filling, cost.passes, stages);
  branch.schedules.for_each(plan, of, [&](const PlanConfiguration&, int place) {
    double& bound = bounds[static_cast<std::size_t>(place)];
    bound = open ? below(cost.step_seconds + stragglers * bound) : std::numeric_limits<double>::infinity();
  });
}

/// Those schedules of a set whose plans may take at most `limit(plan)` seconds; it does not grow with what a
/// schedule adds to the complexity of the plan.
template <class Limit>
[[nodiscard]] constexpr ScheduleSet
within(const SearchInput& in, const SearchBranch& branch, const PlanLinks& links, ScheduleSet of,
       const PipelineFilling& filling, const Limit& limit, std::int64_t& evaluations) {
  ScheduleBounds bounds{};
  const ScheduleSet paired = branch.schedules.paired;
  const double most = limit(branch.plan);
  bound_schedules(bounds, in, branch, links, of & ~paired, filling, most, evaluations);
  bound_schedules(bounds, in, branch, links, of & paired, filling, most, evaluations);
  ScheduleSet out = of;
  branch.schedules.for_each(branch.plan, of, [&](const PlanConfiguration& plan, int place) {
    const double bound = bounds[static_cast<std::size_t>(place)];
    if (bound > most || bound > limit(plan))
      out &= ~(ScheduleSet{1} << place);
  });
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
