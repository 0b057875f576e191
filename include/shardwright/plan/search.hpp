// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds the fastest plan that fits, over all legal ones, at compile time or at run time.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/calibration.hpp>
#include <shardwright/plan/cluster_spec.hpp>
#include <shardwright/plan/evaluate.hpp>
#include <shardwright/plan/model_spec.hpp>
#include <shardwright/plan/pipeline_shape.hpp>
#include <shardwright/plan/plan_configuration.hpp>
#include <shardwright/plan/run_spec.hpp>
#include <shardwright/plan/search_space.hpp>
#include <shardwright/plan/step_cost.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief What a search found.
struct Plan {
  PlanProblem problem = PlanProblem::none; ///< Why there is no plan; `none` where there is one.
  PlanConfiguration configuration{};       ///< The plan, or the legal one that needs least memory.
  StepCost cost{};                         ///< Of the configuration.
  std::int64_t evaluations = 0;            ///< Configurations that were costed.

  [[nodiscard]] constexpr bool found() const noexcept { return problem == PlanProblem::none; }
};

namespace detail {

/// Extents of the two innermost axes, and a time that no plan with them can beat.
struct SearchGroup {
  double floor_seconds = 0;
  int tp = 1;
  int cp = 1;
};

/// What a search knows before it begins: the values that extents may have, and the groups, fastest first.
struct SearchTables {
  static constexpr std::size_t most_groups = 512;
  Divisors stages{}, experts{}, batches{};
  std::array<SearchGroup, most_groups> groups{};
  int group_count = 0;
  std::int64_t evaluations = 0;
};

/// The least of something so far. None is 0, because g++ 12 loses other initial values of arrays once
/// constants have been made from them.
struct SearchCandidate {
  double measure = 0;
  PlanConfiguration plan{};
};

/// Where a search stands. A search may stop anywhere and go on later, so that a compiler can spread it over
/// constants, each with a limit of its own on the operations that it takes.
struct SearchState {
  int group = 0, stage = 0, expert = 0, batch = 0;
  double best_seconds = std::numeric_limits<double>::infinity();
  std::array<SearchCandidate, most_complexity + 1> fastest{}; ///< By complexity.
  SearchCandidate smallest{};                                 ///< In bytes, of those that were costed first.
  std::int64_t evaluations = 0;
  bool done = false;
};

[[nodiscard]] constexpr bool allows(const std::optional<int>& settled, std::int64_t value) {
  return !settled || *settled == value;
}

/// The search of one model, cluster and run.
///
/// Branch and bound. What a rank computes and what it sends in its layers depends on tp, cp, ep and the
/// microbatch alone, however the other ranks are divided into stages and data ranks. This is the floor of a
/// branch; branches above the best time found, and its tolerance, are left out.
class PlanSearch {
public:
  constexpr PlanSearch(const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
                       const SearchSpace& space)
      : model_(model), cluster_(cluster), run_(run), space_(space),
        calibration_(calibration_of(cluster.chip.generation)) {}

  [[nodiscard]] constexpr SearchTables tables() const {
    SearchTables out;
    if (problem_of(model_, cluster_, run_, {}) == PlanProblem::empty_input)
      return out;
    const std::int64_t chips = cluster_.chips();
    out.stages = divisors_of(chips);
    out.experts = divisors_of(std::max(1, model_.experts.count));
    out.batches = divisors_of(run_.sequences);
    const Divisors heads = divisors_of(model_.heads), slices = divisors_of(run_.sequence_length);
    for (int i = 0; i < heads.count; ++i)
      for (int j = 0; j < slices.count; ++j) {
        const std::int64_t tp = heads[i], cp = slices[j];
        if (chips % (tp * cp) != 0 || !allows(space_.tp, tp) || !allows(space_.cp, cp) ||
            out.group_count == static_cast<int>(SearchTables::most_groups))
          continue;
        SearchGroup group{0, static_cast<int>(tp), static_cast<int>(cp)};
        group.floor_seconds = floor_of_group(out, group);
        ++out.evaluations;
        // Inserted in its place: std::sort takes more operations than compilers allow.
        int at = out.group_count++;
        for (; at > 0 && out.groups[static_cast<std::size_t>(at - 1)].floor_seconds > group.floor_seconds;
             --at)
          out.groups[static_cast<std::size_t>(at)] = out.groups[static_cast<std::size_t>(at - 1)];
        out.groups[static_cast<std::size_t>(at)] = group;
      }
    return out;
  }

  /// Goes on for about so many evaluations.
  constexpr void advance(const SearchTables& tables, SearchState& state, std::int64_t evaluations) const {
    const std::int64_t until = evaluations > std::numeric_limits<std::int64_t>::max() - state.evaluations
                                   ? evaluations
                                   : state.evaluations + evaluations;
    while (!state.done && state.evaluations < until) {
      if (state.group == tables.group_count ||
          tables.groups[static_cast<std::size_t>(state.group)].floor_seconds > limit(state)) {
        state.done = true;
        return;
      }
      visit(tables, state);
    }
  }

  /// The simplest of the plans within the tolerance of the best time, of these the fastest.
  [[nodiscard]] constexpr Plan result(const SearchTables& tables, const SearchState& state) const {
    Plan out;
    out.evaluations = tables.evaluations + state.evaluations;
    if (tables.group_count == 0 && problem_of(model_, cluster_, run_, {}) == PlanProblem::empty_input) {
      out.problem = PlanProblem::empty_input;
      return out;
    }
    for (const SearchCandidate& candidate : state.fastest)
      if (candidate.measure > 0 && candidate.measure <= limit(state)) {
        out.configuration = candidate.plan;
        out.cost = evaluate(model_, cluster_, run_, out.configuration, calibration_);
        return out;
      }
    out.problem = PlanProblem::batch_not_divisible; // no extents divide what they must
    if (state.smallest.measure > 0) {
      out.configuration = state.smallest.plan;
      out.cost = evaluate(model_, cluster_, run_, out.configuration, calibration_);
      out.problem = PlanProblem::out_of_memory;
    }
    return out;
  }

private:
  [[nodiscard]] constexpr double limit(const SearchState& state) const {
    return state.best_seconds * (1 + space_.tolerance);
  }

  [[nodiscard]] constexpr PlanConfiguration base(int tp, int cp) const {
    PlanConfiguration plan;
    plan.tp = tp;
    plan.cp = cp;
    plan.sequence_parallel = run_.sequence_length % (static_cast<std::int64_t>(tp) * cp) == 0;
    plan.zero_stage = 1;
    return plan;
  }

  /// Time of what the layers compute and send, but for the traffic of experts.
  [[nodiscard]] constexpr double floor_of(const StepCost& cost) const {
    double hidden = 0;
    for (const TrafficCost& one : cost.traffic)
      hidden += one.hidden_seconds();
    const double layers = cost.matmul_seconds + cost.attention_seconds + cost.elementwise_seconds +
                          cost.overhead_seconds - hidden * calibration_.shared.contention +
                          cost.of(Traffic::tensor).exposed_seconds +
                          cost.of(Traffic::context).exposed_seconds;
    return layers * jitter_of(cost) * (1 - 1e-12);
  }
  [[nodiscard]] static constexpr double jitter_of(const StepCost& cost) {
    return cost.step_seconds / (cost.step_seconds - cost.straggler_seconds);
  }

  /// With the largest microbatch and expert parallelism that anything allows: both save time alone, but for
  /// the traffic of experts, which is left out.
  [[nodiscard]] constexpr double floor_of_group(const SearchTables& tables, const SearchGroup& group) const {
    PlanConfiguration plan = base(group.tp, group.cp);
    const std::int64_t others = cluster_.chips() / (static_cast<std::int64_t>(plan.tp) * plan.cp);
    for (int i = 0; i < tables.stages.count; ++i)
      if (const std::int64_t pp = tables.stages[i]; pp <= model_.layers && others % pp == 0)
        plan.pp = static_cast<int>(pp);
    plan.dp = static_cast<int>(others / plan.pp);
    plan.microbatch = static_cast<int>(std::max<std::int64_t>(1, run_.sequences / plan.dp));
    plan.ep = std::max(1, model_.experts.count);
    plan.zero_stage = 0; // there may be fewer ranks than experts
    return floor_of(evaluate(model_, cluster_, run_, plan, calibration_));
  }

  /// Takes one step of the odometer over pp, ep and microbatch, and tries all plans with these.
  constexpr void visit(const SearchTables& tables, SearchState& state) const {
    const SearchGroup& group = tables.groups[static_cast<std::size_t>(state.group)];
    PlanConfiguration plan = base(group.tp, group.cp);
    const std::int64_t pp = tables.stages[state.stage];
    const std::int64_t others = cluster_.chips() / (static_cast<std::int64_t>(plan.tp) * plan.cp);
    const auto carry_stage = [&] {
      state.expert = state.batch = 0;
      if (++state.stage == tables.stages.count) {
        state.stage = 0;
        ++state.group;
      }
    };
    if (pp > model_.layers || others % pp != 0 || run_.sequences % (others / pp) != 0 ||
        !allows(space_.pp, pp) || !allows(space_.dp, others / pp))
      return carry_stage();
    plan.pp = static_cast<int>(pp);
    plan.dp = static_cast<int>(others / pp);
    const std::int64_t ep = tables.experts[state.expert];
    const auto carry_expert = [&] {
      state.batch = 0;
      if (++state.expert == tables.experts.count)
        carry_stage();
    };
    if (cluster_.chips() / pp % ep != 0 || !allows(space_.ep, ep))
      return carry_expert();
    plan.ep = static_cast<int>(ep);
    const std::int64_t batch = tables.batches[state.batch];
    if (batch > run_.sequences / plan.dp)
      return carry_expert();
    plan.microbatch = static_cast<int>(batch);
    bool larger = true;
    if (run_.sequences / plan.dp % batch == 0 && allows(space_.microbatch, batch))
      larger = try_all(plan, state);
    if (++state.batch == tables.batches.count || !larger)
      carry_expert();
  }

  /// The schedules that are not ruled out, with their numbers of chunks.
  template <class Function>
  constexpr void for_each_schedule(const Function& function) const {
    for (int kind = 0; kind < 8; ++kind) {
      const auto schedule = static_cast<PlanSchedule>(kind);
      const bool interleaved = schedule == PlanSchedule::interleaved;
      if (space_.schedule && *space_.schedule != schedule)
        continue;
      for (int chunks = interleaved ? 2 : 1; chunks <= (interleaved ? most_chunks : 1); ++chunks)
        if (!interleaved || allows(space_.chunks, chunks))
          function(schedule, chunks);
    }
  }

  /// Tries all plans with these extents; false where none fits, and so none with a larger microbatch.
  ///
  /// No schedule keeps less than 1F1B, so that what does not fit with it does not fit at all. Recomputation
  /// takes time and saves memory: with each sharding and schedule, the first that fits is the fastest.
  constexpr bool try_all(PlanConfiguration plan, SearchState& state) const {
    std::uint64_t settled = 0; // one bit for each sharding and schedule
    bool fits = false;
    for (int kind = 0; kind < 3; ++kind) {
      plan.recomputation = static_cast<Recomputation>(kind);
      if (space_.recomputation && *space_.recomputation != plan.recomputation)
        continue;
      plan.schedule = PlanSchedule::one_f_one_b;
      plan.chunks = 1;
      plan.zero_stage = space_.zero_stage.value_or(2); // no other sends or updates less
      StepCost least = cost_of(plan, state);
      if (std::min(without_idling(least) + least_idling(plan, least),
                   without_idling(least) - pairing_saves(plan, least)) > limit(state) * (1 + 1e-12))
        return true;
      keep(state.smallest, least.memory.total(), plan);
      // What keeps less where a rank holds few parameters, or shares them with few.
      for (const int other : {3, 1})
        if (least.problem != PlanProblem::none && !space_.zero_stage && (other == 1 || plan.pp == 1)) {
          plan.zero_stage = other;
          least = cost_of(plan, state);
          keep(state.smallest, least.memory.total(), plan);
        }
      if (least.problem != PlanProblem::none)
        continue;
      fits = true;
      for (plan.zero_stage = 0; plan.zero_stage <= 3; ++plan.zero_stage)
        if (allows(space_.zero_stage, plan.zero_stage))
          try_schedules(plan, settled, state);
    }
    return fits;
  }

  constexpr void try_schedules(PlanConfiguration plan, std::uint64_t& settled, SearchState& state) const {
    plan.schedule = PlanSchedule::one_f_one_b;
    plan.chunks = 1;
    const StepCost simple = cost_of(plan, state);
    if (simple.problem != PlanProblem::none)
      return;
    const bool pipeline = plan.pp > 1;
    const auto take = [&](const StepCost& cost, std::uint64_t bit) {
      if ((settled & bit) != 0 || cost.problem != PlanProblem::none)
        return;
      settled |= bit;
      keep(state.fastest[static_cast<std::size_t>(complexity(plan))], cost.step_seconds, plan);
      state.best_seconds = std::min(state.best_seconds, cost.step_seconds);
    };
    const std::uint64_t first = std::uint64_t{1} << (16 * plan.zero_stage);
    if (!pipeline || !space_.schedule || *space_.schedule == plan.schedule)
      take(simple, first);
    if (!pipeline)
      return;
    const double busy = without_idling(simple);
    std::uint64_t bit = first;
    for_each_schedule([&](PlanSchedule schedule, int chunks) {
      bit *= 2;
      plan.schedule = schedule;
      plan.chunks = chunks;
      if (schedule != PlanSchedule::one_f_one_b && (settled & bit) == 0 &&
          (pairs(schedule) ? busy - pairing_saves(plan, simple) : busy + idling(plan, simple)) <=
              limit(state) * (1 + 1e-12))
        take(cost_of(plan, state), bit);
    });
  }

  /// Time of a step less what depends on the schedule.
  [[nodiscard]] constexpr double without_idling(const StepCost& cost) const {
    const TrafficCost& sends = cost.of(Traffic::pipeline);
    const double scheduled =
        cost.bubble_seconds + sends.exposed_seconds + calibration_.shared.contention * sends.hidden_seconds();
    return cost.step_seconds - scheduled * jitter_of(cost);
  }
  /// Schedules that run a forward beside a backward hide the traffic of experts behind it.
  [[nodiscard]] static constexpr bool pairs(PlanSchedule schedule) {
    return schedule == PlanSchedule::dual_pipe || schedule == PlanSchedule::dual_pipe_v;
  }
  /// No more than this; infinitely negative without a pipeline.
  [[nodiscard]] static constexpr double pairing_saves(const PlanConfiguration& plan, const StepCost& cost) {
    return plan.pp == 1
               ? -std::numeric_limits<double>::infinity()
               : (cost.of(Traffic::expert).exposed_seconds + cost.imbalance_seconds) * jitter_of(cost);
  }
  /// Least time that a plan adds to that for its bubble; infinite where its schedule is not allowed.
  [[nodiscard]] constexpr double idling(const PlanConfiguration& plan, const StepCost& cost) const {
    const auto microbatches =
        static_cast<int>(run_.sequences / (static_cast<std::int64_t>(plan.dp) * plan.microbatch));
    const int chunks = chunks_of(plan.schedule, plan.chunks);
    if (model_.layers < plan.pp * chunks || !rule_of(plan.schedule, plan.pp, microbatches).holds())
      return std::numeric_limits<double>::infinity();
    return pipeline_shape(plan.schedule, plan.pp, microbatches, chunks, cost.passes).bubble * jitter_of(cost);
  }
  [[nodiscard]] constexpr double least_idling(PlanConfiguration plan, const StepCost& cost) const {
    if (plan.pp == 1)
      return 0;
    double least = std::numeric_limits<double>::infinity();
    for_each_schedule([&](PlanSchedule schedule, int chunks) {
      plan.schedule = schedule;
      plan.chunks = chunks;
      if (!pairs(schedule))
        least = std::min(least, idling(plan, cost));
    });
    return least;
  }

  constexpr StepCost cost_of(const PlanConfiguration& plan, SearchState& state) const {
    ++state.evaluations;
    return evaluate(model_, cluster_, run_, plan, calibration_);
  }

  static constexpr void keep(SearchCandidate& kept, double measure, const PlanConfiguration& plan) {
    if (kept.measure == 0 || measure < kept.measure ||
        (measure == kept.measure && comes_first(plan, kept.plan)))
      kept = {measure, plan};
  }

  const ModelSpec& model_;
  const ClusterSpec& cluster_;
  const RunSpec& run_;
  SearchSpace space_;
  Calibration calibration_;
};

} // namespace detail

/// @brief The best plan for a run of a model on a cluster: of all legal plans that fit into memory and are at
/// most `space.tolerance` slower than the fastest one, the simplest.
///
/// Legal is what `problem_of` allows. The mesh is laid over the domains from inner to outer in the order tp,
/// cp, dp, pp; experts lie over the innermost ranks of a stage.
[[nodiscard]] constexpr Plan search(const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
                                    const SearchSpace& space = {}) {
  const detail::PlanSearch search(model, cluster, run, space);
  const detail::SearchTables tables = search.tables();
  detail::SearchState state;
  search.advance(tables, state, std::numeric_limits<std::int64_t>::max());
  return search.result(tables, state);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
