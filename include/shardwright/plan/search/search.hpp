// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds the fastest plan that fits, over all legal ones, at compile time or at run time.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/evaluate.hpp>
#include <shardwright/plan/cost/links.hpp>
#include <shardwright/plan/cost/pipeline_shape.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/search/bounds.hpp>
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

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The result of a search.
///
/// `search` compares costs. In uneven pipelines these differ from simulated steps by up to 12%, and by more
/// than 3% in one of 300 (docs/explanation/planner.md); `Searches` has the plans that are best when
/// simulated.
struct Plan {
  PlanProblem problem = PlanProblem::none; ///< Why there is no plan; `none` if there is one.
  PlanConfiguration configuration{};       ///< The plan, or the legal one that needs the least memory.
  StepCost cost{};                         ///< Of the configuration.
  std::int64_t evaluations = 0;            ///< Times that were computed, of plans and of bounds.

  [[nodiscard]] constexpr bool found() const noexcept { return problem == PlanProblem::none; }
};

namespace detail {

/// The search of one model, cluster and run.
///
/// Branch and bound over tp and cp, then ep, stages, microbatches: branches that cannot contain a plan within
/// the tolerance, or a simpler one, are skipped.
class PlanSearch {
public:
  constexpr PlanSearch(const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
                       const SearchSpace& space)
      : in_(model, cluster, run, space) {}

  [[nodiscard]] constexpr const SearchInput& input() const noexcept { return in_; }

  /// The groups of tp and cp, those first that could have the fastest plan.
  [[nodiscard]] constexpr SearchTables tables() const {
    SearchTables out;
    if (is_unusable(problem_of(in_.model, in_.cluster, in_.run, {})))
      return out;
    const std::int64_t chips = in_.cluster.chips();
    out.stages = divisors_of(chips);
    out.experts = divisors_of(std::max(1, in_.model.experts.count));
    out.batches = divisors_of(in_.run.sequences);
    const Divisors heads = divisors_of(in_.model.heads), slices = divisors_of(in_.run.sequence_length);
    for (int i = 0; i < heads.count; ++i)
      for (int j = 0; j < slices.count; ++j) {
        const std::int64_t tp = heads[i], cp = slices[j];
        if (chips % (tp * cp) != 0 || !in_.run.allows_extent(tp) || !in_.run.allows_extent(cp) ||
            !allows(in_.space.tp, tp) || !allows(in_.space.cp, cp) ||
            out.group_count == static_cast<int>(SearchTables::most_groups))
          continue;
        SearchGroup group{0, static_cast<int>(tp), static_cast<int>(cp)};
        PlanConfiguration plan = base(group); // upper limits of the microbatch and of ep
        plan.microbatch = static_cast<int>(in_.run.sequences);
        plan.ep = std::max(1, in_.model.experts.count);
        LayerTraffic traffic = least_traffic(
            in_, plan, least_links(in_.cluster, plan, copies_of(in_.model, in_.run), in_.calibration.shared));
        traffic.expert = {}; // there may be none
        group.floor_seconds = layers_floor(in_, plan, computation_of(in_, plan), traffic);
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

  /// Continues for about this many evaluations.
  constexpr void advance(const SearchTables& tables, SearchState& state, std::int64_t evaluations) const {
    const std::int64_t until = evaluations > std::numeric_limits<std::int64_t>::max() - state.evaluations
                                   ? evaluations
                                   : state.evaluations + evaluations;
    SearchBranch branch; // reused, because it is large
    while (!state.done && state.evaluations < until) {
      if (state.group == tables.group_count ||
          tables.groups[static_cast<std::size_t>(state.group)].floor_seconds > limit(state)) {
        state.done = true;
        return;
      }
      visit(tables, branch, state);
      if (++state.stage == tables.stages.count) {
        state.stage = 0;
        if (++state.expert == tables.experts.count) {
          state.expert = 0;
          ++state.group;
        }
      }
    }
  }

  /// The simplest of the plans within the tolerance of the best time, of these the fastest.
  [[nodiscard]] constexpr Plan result(const SearchTables& tables, const SearchState& state) const {
    Plan out;
    out.evaluations = tables.evaluations + state.evaluations;
    if (tables.group_count == 0)
      if (const PlanProblem problem = problem_of(in_.model, in_.cluster, in_.run, {}); is_unusable(problem)) {
        out.problem = problem;
        return out;
      }
    for (const SearchCandidate& candidate : state.fastest)
      if (candidate.measure > 0 && candidate.measure <= limit(state)) {
        out.configuration = candidate.plan;
        out.cost = evaluate(in_.model, in_.cluster, in_.run, out.configuration, in_.calibration)
                       .lasting(candidate.measure);
        return out;
      }
    out.problem = PlanProblem::batch_not_divisible; // no extents divide the sizes that they must divide
    if (state.smallest.measure > 0) {
      out.configuration = state.smallest.plan;
      out.cost = evaluate(in_.model, in_.cluster, in_.run, out.configuration, in_.calibration);
      out.problem = PlanProblem::out_of_memory;
    }
    return out;
  }

private:
  [[nodiscard]] constexpr double limit(const SearchState& state) const {
    return state.best_seconds * (1 + in_.space.tolerance);
  }
  /// The time that a plan of this complexity must not exceed to be of use: there may be a simpler one within
  /// the limit.
  [[nodiscard]] constexpr double limit(const SearchState& state, int complexity) const {
    double least = limit(state);
    for (int i = 0; i <= complexity; ++i)
      if (const double measure = state.fastest[static_cast<std::size_t>(i)].measure; measure > 0)
        least = std::min(least, measure);
    return least;
  }

  /// The same of plans.
  [[nodiscard]] constexpr auto limit_in(const SearchState& state) const {
    return [this, &state](const PlanConfiguration& plan) { return limit(state, complexity(plan)); };
  }

  [[nodiscard]] constexpr PlanConfiguration base(const SearchGroup& group) const {
    PlanConfiguration plan;
    plan.tp = group.tp;
    plan.cp = group.cp;
    plan.dp = static_cast<int>(in_.cluster.chips() / (static_cast<std::int64_t>(plan.tp) * plan.cp));
    plan.sequence_parallel = in_.cluster.chip.host() == HostKind::compiled ||
                             in_.run.sequence_length % (static_cast<std::int64_t>(plan.tp) * plan.cp) == 0;
    return plan;
  }

  /// Tries all plans with one tp, cp, ep and number of stages.
  constexpr void visit(const SearchTables& tables, SearchBranch& branch, SearchState& state) const {
    PlanConfiguration plan = base(tables.groups[static_cast<std::size_t>(state.group)]);
    const std::int64_t others = plan.dp, ep = tables.experts[state.expert], pp = tables.stages[state.stage];
    if (pp > in_.model.stacked_layers() || others % pp != 0 || in_.run.sequences % (others / pp) != 0 ||
        in_.cluster.chips() / pp % ep != 0 || !allows(in_.space.pp, pp) ||
        !allows(in_.space.dp, others / pp) || !allows(in_.space.ep, ep))
      return;
    if (const int shards = in_.space.shard_ranks.value_or(0);
        shards > 0 && (others / pp * plan.cp % shards != 0 || in_.model.experts.used()))
      return;
    plan.ep = static_cast<int>(ep);
    plan.pp = static_cast<int>(pp);
    plan.dp = static_cast<int>(others / pp);
    plan.shard_ranks = in_.space.shard_ranks.value_or(0);
    plan.recomputation = in_.space.recomputation.value_or(Recompute::none);
    plan.recomputed = in_.space.recomputed;
    const std::int64_t each = in_.run.sequences / plan.dp;
    branch.batch_count = branch.orders.count = 0;
    for (int i = 0; i < tables.batches.count && tables.batches[i] <= each; ++i)
      if (each % tables.batches[i] == 0 && allows(in_.space.microbatch, tables.batches[i]))
        branch.batches[static_cast<std::size_t>(branch.batch_count++)] = static_cast<int>(tables.batches[i]);
    if (branch.batch_count == 0)
      return;
    branch.begin(in_, plan);
    const ScheduleSet open = useful(branch, 0, branch.batch_count, branch.schedules.all(), state);
    branch.plan.microbatch = branch.batches[0];
    if (open != 0 && settle_least(branch, state))
      try_batches(branch, 0, branch.batch_count, open, state);
  }

  /// Tries microbatches with schedules that are not ruled out; false if one does not fit, and so none above
  /// it.
  constexpr bool try_batches(SearchBranch& branch, int from, int to, ScheduleSet open,
                             SearchState& state) const {
    if (to - from == 1)
      return try_branch(branch, open, state);
    const auto half = [&](int first, int end) {
      const ScheduleSet left = useful(branch, first, end, open, state);
      return left == 0 || try_batches(branch, first, end, left, state);
    };
    const int middle = (from + to) / 2;
    return half(from, middle) && half(middle, to);
  }

  /// Those schedules of a set with which a plan with these microbatches can be of use.
  ///
  /// Computes for the largest, which needs least time for all layers; a smaller one fills a pipeline faster.
  constexpr ScheduleSet useful(SearchBranch& branch, int from, int to, ScheduleSet of,
                               SearchState& state) const {
    PlanConfiguration& plan = branch.plan;
    const PlanLinks& links = branch.orders.count > 0 ? branch.orders.least : branch.least;
    const BatchCosts& largest = costs_of(in_, branch, to - 1);
    if (largest.floor_seconds > limit(state, complexity(plan)))
      return 0;
    branch.computed = largest.computed;
    const bool one = to - from == 1;
    plan.microbatch = branch.batches[static_cast<std::size_t>(from)];
    PipelineFilling filling{plan, {}, one};
    if (one)
      of = branch.schedules.legal(in_.run, plan, of);
    else if (plan.pp > 1)
      filling.passes = least_pass(in_, plan, costs_of(in_, branch, from).computed, links).passes;
    plan.microbatch = branch.batches[static_cast<std::size_t>(to - 1)];
    return within(in_, branch, links, of, filling, limit_in(state), state.evaluations);
  }

  /// Tries the schedules of a set; false if no plan of the branch fits, and so none with a larger microbatch.
  constexpr bool try_branch(SearchBranch& branch, ScheduleSet open, SearchState& state) const {
    if (!settle_least(branch, state))
      return false;
    SearchOrders& orders = branch.orders;
    if (orders.count == 0) {
      orders.find(in_.cluster, branch.plan, copies_of(in_.model, in_.run), in_.calibration.shared, in_.space);
      open = within(in_, branch, orders.least, open, {}, limit_in(state), state.evaluations);
    }
    for (std::size_t i = 0; open != 0 && i < static_cast<std::size_t>(orders.count); ++i) {
      PlanConfiguration plan = branch.plan;
      orders.settle(plan, i);
      if (layers_floor(in_, plan, branch.computed, least_traffic(in_, plan, orders.links[i])) >
          limit(state, complexity(plan)))
        continue;
      const ScheduleSet left =
          orders.count == 1 // it has the least links
              ? open
              : within(in_, branch, orders.links[i], open, {}, limit_in(state), state.evaluations);
      branch.schedules.for_each(plan, left, [&](const PlanConfiguration& one, int) {
        try_plan(branch, one, orders.links[i], state);
      });
    }
    return true;
  }

  /// Finds the least recomputation, and the lowest stage of ZeRO, with which a plan of the branch fits; false
  /// if none does. Until a plan fits, remembers the one that needs the least memory.
  constexpr bool settle_least(SearchBranch& branch, SearchState& state) const {
    const bool none = state.best_seconds == std::numeric_limits<double>::infinity();
    PlanConfiguration plan = branch.plan;
    const ScheduleSet legal =
        none ? branch.schedules.legal(in_.run, plan, branch.schedules.all()) : ScheduleSet{};
    // A larger microbatch may be legal for DualPipe where this one is not: an even number of them is left. If
    // any is legal, that of one sequence is.
    const bool dual_pipe =
        plan.pp > 1 && allows(in_.space.schedule, PlanSchedule::dual_pipe) &&
        rule_of(PlanSchedule::dual_pipe, plan.pp, static_cast<int>(in_.run.sequences / plan.dp)).holds();
    int recomputation = 3, stage = 4;
    for (int kind = 0; kind < 3; ++kind)
      for (int zero = 0; zero <= 3; ++zero) {
        plan.recomputation = static_cast<Recompute>(kind);
        plan.zero_stage = zero;
        if (!allows(in_.space.recomputation, plan.recomputation) || !allows(in_.space.zero_stage, zero))
          continue;
        if (!none && zero >= stage && recomputation <= kind)
          continue;
        if (fits(in_, branch, plan, dual_pipe)) {
          recomputation = std::min(recomputation, kind);
          stage = std::min(stage, zero);
        }
        if (none)
          branch.schedules.for_each(plan, legal, [&](const PlanConfiguration& scheduled, int) {
            keep(state.smallest, memory_of(in_, branch, scheduled).total(), scheduled);
          });
      }
    if (stage == 4)
      return none && legal == 0; // a larger microbatch may be the first legal one, to be remembered
    branch.plan.recomputation = static_cast<Recompute>(recomputation);
    branch.plan.zero_stage = stage;
    return true;
  }

  /// Tries the shardings of a branch's plan. Recomputation takes time and saves memory: for each schedule and
  /// sharding, the first that fits is the fastest.
  constexpr void try_plan(const SearchBranch& branch, PlanConfiguration plan, const PlanLinks& links,
                          SearchState& state) const {
    for (; plan.zero_stage <= 3; ++plan.zero_stage) {
      plan.recomputation = branch.plan.recomputation;
      if (!allows(in_.space.zero_stage, plan.zero_stage) || !settle_recomputation(branch, plan))
        continue;
      const double seconds = step_seconds_of(in_, branch, plan, links);
      ++state.evaluations;
      keep(state.fastest[static_cast<std::size_t>(complexity(plan))], seconds, plan);
      state.best_seconds = std::min(state.best_seconds, seconds);
      if (seconds <= state.best_seconds * (1 + near_best))
        state.last[static_cast<std::size_t>(state.near++) % last_candidates] = {seconds, plan};
    }
  }

  /// Chooses the least recomputation that fits, if any does.
  [[nodiscard]] constexpr bool settle_recomputation(const SearchBranch& branch,
                                                    PlanConfiguration& plan) const {
    for (int kind = static_cast<int>(plan.recomputation); kind < 3; ++kind) {
      plan.recomputation = static_cast<Recompute>(kind);
      if (allows(in_.space.recomputation, plan.recomputation) &&
          memory_of(in_, branch, plan).total() <= in_.capacity())
        return true;
    }
    return false;
  }

  SearchInput in_;
};

} // namespace detail

/// @brief The best plan for a run of a model on a cluster: of all legal plans that fit into memory and are at
/// most `space.tolerance` slower than the fastest one, the simplest.
///
/// Of plans that differ in recomputation only, it takes the first that fits: none, a selective one, a full
/// one. Legal means allowed by `problem_of`, with any order of the mesh's axes over the cluster's domains.
[[nodiscard]] constexpr Plan search(const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
                                    const SearchSpace& space = {}) {
  const detail::PlanSearch all(model, cluster, run, space);
  const detail::SearchTables tables = all.tables();
  detail::SearchState state;
  all.advance(tables, state, std::numeric_limits<std::int64_t>::max());
  return all.result(tables, state);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
