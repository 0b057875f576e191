// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds the fastest plan that fits, over all legal ones, at compile time or at run time.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/calibration.hpp>
#include <shardwright/plan/cluster_spec.hpp>
#include <shardwright/plan/evaluate.hpp>
#include <shardwright/plan/model_spec.hpp>
#include <shardwright/plan/plan_configuration.hpp>
#include <shardwright/plan/plan_links.hpp>
#include <shardwright/plan/run_spec.hpp>
#include <shardwright/plan/search_orders.hpp>
#include <shardwright/plan/search_schedules.hpp>
#include <shardwright/plan/search_space.hpp>
#include <shardwright/plan/search_state.hpp>
#include <shardwright/plan/step_cost.hpp>
#include <shardwright/plan/step_times.hpp>

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
  std::int64_t evaluations = 0;            ///< Times that were computed, of plans and of bounds.

  [[nodiscard]] constexpr bool found() const noexcept { return problem == PlanProblem::none; }
};

namespace detail {

/// The search of one model, cluster and run.
///
/// Branch and bound over tp and cp, then ep, stages, microbatches. Each branch is timed by `add_times` with
/// the least that its open choices may add, part by part, so that whatever the cost model says of a choice
/// holds for the bound; branches that nothing within the tolerance, or nothing simpler, can come from are
/// left out.
class PlanSearch {
public:
  constexpr PlanSearch(const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
                       const SearchSpace& space)
      : model_(model), cluster_(cluster), run_(run), space_(space),
        size_(model.heads > 0 ? size_of(model) : ModelSize{}),
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
        PlanConfiguration plan = base(group); // the largest microbatch and ep that anything allows
        plan.microbatch = static_cast<int>(run_.sequences);
        plan.ep = std::max(1, model_.experts.count);
        LayerTraffic traffic = least_traffic(plan);
        traffic.expert = {}; // there may be none
        group.floor_seconds = layers_floor(plan, computation_of(plan), traffic);
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
  /// What the plans with the same extents share, and those with the same microbatch.
  struct Branch {
    PlanConfiguration plan{};
    PlanLinks least{}; ///< That no order betters.
    SearchOrders orders{};
    SearchSchedules schedules{};               ///< That are allowed with these numbers.
    std::array<int, Divisors::most> batches{}; ///< That divide a rank's sequences, in ascending order.
    int batch_count = 0;
    RankComputation computed{};
  };
  /// How a pipeline fills where a bound is for several microbatches: as with the smallest of them.
  struct Filling {
    PlanConfiguration plan{};
    PassCosts passes{};
    bool own = true; ///< The microbatch is that of the branch.
  };

  [[nodiscard]] constexpr double limit(const SearchState& state) const {
    return state.best_seconds * (1 + space_.tolerance);
  }
  /// What a plan of this complexity must not exceed to be of use: there may be a simpler one within the
  /// limit.
  [[nodiscard]] constexpr double limit(const SearchState& state, int complexity) const {
    double least = limit(state);
    for (int i = 0; i <= complexity; ++i)
      if (const double measure = state.fastest[static_cast<std::size_t>(i)].measure; measure > 0)
        least = std::min(least, measure);
    return least;
  }

  [[nodiscard]] constexpr PlanConfiguration base(const SearchGroup& group) const {
    PlanConfiguration plan;
    plan.tp = group.tp;
    plan.cp = group.cp;
    plan.dp = static_cast<int>(cluster_.chips() / (static_cast<std::int64_t>(plan.tp) * plan.cp));
    plan.sequence_parallel = run_.sequence_length % (static_cast<std::int64_t>(plan.tp) * plan.cp) == 0;
    return plan;
  }
  [[nodiscard]] constexpr RankComputation computation_of(const PlanConfiguration& plan) const {
    return rank_computation(model_, cluster_, run_, plan, calibration_);
  }

  /// What a layer sends at least, in whatever order and with whatever schedule.
  [[nodiscard]] constexpr LayerTraffic least_traffic(PlanConfiguration plan) const {
    const SharedCalibration& shared = calibration_.shared;
    const PlanLinks links = least_links(cluster_, plan, model_.experts.active, shared);
    LayerTraffic least = layer_traffic(model_, cluster_, run_, plan, links, shared);
    plan.pp = 2; // stages enough for every schedule
    for (const PlanSchedule schedule : {PlanSchedule::dual_pipe, PlanSchedule::one_f_one_b}) {
      plan.schedule = schedule;
      const LayerTraffic other = layer_traffic(model_, cluster_, run_, plan, links, shared);
      least = least_of(least, other);
    }
    return least;
  }

  /// Time of what the layers compute and send in themselves, whatever the other ranks are divided into: dp
  /// and pp share out layers and sequences.
  [[nodiscard]] constexpr double layers_floor(const PlanConfiguration& plan, const RankComputation& computed,
                                              const LayerTraffic& traffic) const {
    const SharedCalibration& shared = calibration_.shared;
    const double expert = model_.expert_layers();
    const StagePass all = stage_pass({model_.layers - expert, expert, 1}, computed, traffic,
                                     repeats_of(Recomputation::none), shared);
    const double passes = static_cast<double>(run_.sequences) * plan.tp * plan.cp /
                          (static_cast<double>(cluster_.chips()) * plan.microbatch);
    return passes * all.seconds() *
           (1 + shared.jitter * doublings_above_eight(static_cast<double>(cluster_.chips()))) * (1 - 1e-12);
  }

  /// Tries all plans with one tp, cp, ep and number of stages.
  constexpr void visit(const SearchTables& tables, SearchState& state) const {
    PlanConfiguration plan = base(tables.groups[static_cast<std::size_t>(state.group)]);
    const std::int64_t others = plan.dp, ep = tables.experts[state.expert], pp = tables.stages[state.stage];
    if (pp > model_.layers || others % pp != 0 || run_.sequences % (others / pp) != 0 ||
        cluster_.chips() / pp % ep != 0 || !allows(space_.pp, pp) || !allows(space_.dp, others / pp) ||
        !allows(space_.ep, ep))
      return;
    plan.ep = static_cast<int>(ep);
    plan.pp = static_cast<int>(pp);
    plan.dp = static_cast<int>(others / pp);
    plan.recomputation = space_.recomputation.value_or(Recomputation::none);
    const std::int64_t each = run_.sequences / plan.dp;
    Branch branch;
    for (int i = 0; i < tables.batches.count && tables.batches[i] <= each; ++i)
      if (each % tables.batches[i] == 0 && allows(space_.microbatch, tables.batches[i]))
        branch.batches[static_cast<std::size_t>(branch.batch_count++)] = static_cast<int>(tables.batches[i]);
    if (branch.batch_count == 0)
      return;
    branch.plan = plan;
    branch.least = least_links(cluster_, plan, model_.experts.active, calibration_.shared);
    if (rules_out(branch, 0, branch.batch_count, state))
      return;
    branch.plan.microbatch = branch.batches[0];
    if (settle_least(branch.plan, state))
      try_batches(branch, 0, branch.batch_count, state);
  }

  /// Tries the microbatches from one to another; false where one does not fit, and so none above it.
  constexpr bool try_batches(Branch& branch, int from, int to, SearchState& state) const {
    if (rules_out(branch, from, to, state))
      return true;
    if (to - from == 1)
      return try_branch(branch, state);
    const int middle = (from + to) / 2;
    return try_batches(branch, from, middle, state) && try_batches(branch, middle, to, state);
  }

  /// Whether no plan with these microbatches can be of use; computes for the largest of them.
  ///
  /// A larger microbatch takes less time for all of a step's layers, a smaller one for a pipeline to fill.
  constexpr bool rules_out(Branch& branch, int from, int to, SearchState& state) const {
    PlanConfiguration& plan = branch.plan;
    plan.microbatch = branch.batches[static_cast<std::size_t>(from)];
    const bool one = to - from == 1;
    branch.schedules.find(model_, run_, space_, plan, one);
    Filling filling{plan, {}, one};
    if (!one) {
      if (plan.pp > 1)
        filling.passes = least_pass(plan).passes;
      plan.microbatch = branch.batches[static_cast<std::size_t>(to - 1)];
    }
    branch.computed = computation_of(plan);
    const double most = limit(state, complexity(plan));
    return layers_floor(plan, branch.computed, least_traffic(plan)) > most ||
           bound_of(branch, branch.least, ScheduleKind::any, filling, state) > most;
  }

  /// The passes of a stage of average size, with the least traffic.
  [[nodiscard]] constexpr StagePass least_pass(const PlanConfiguration& plan) const {
    const double expert = static_cast<double>(model_.expert_layers()) / plan.pp;
    return stage_pass({static_cast<double>(model_.layers) / plan.pp - expert, expert, 1.0 / plan.pp},
                      computation_of(plan), least_traffic(plan), repeats_of(plan.recomputation),
                      calibration_.shared);
  }

  [[nodiscard]] constexpr double memory_of(const PlanConfiguration& plan) const {
    return memory_cost(model_, size_, run_, plan, kept_microbatches(run_, plan)).total();
  }

  /// Tries all plans of a branch; false where none fits, and so none with a larger microbatch.
  constexpr bool try_branch(Branch& branch, SearchState& state) const {
    if (!settle_least(branch.plan, state))
      return false;
    branch.orders.find(cluster_, branch.plan, model_.experts.active, calibration_.shared, space_);
    const auto limit_now = [&] { return limit(state, complexity(branch.plan)); };
    for (const ScheduleKind kind : {ScheduleKind::unpaired, ScheduleKind::paired}) {
      if (bound_of(branch, branch.orders.least, kind, {}, state) > limit_now())
        continue;
      std::array<double, SearchOrders::most> bounds{};
      for (std::size_t i = 0; i < static_cast<std::size_t>(branch.orders.count); ++i)
        bounds[i] = bound_of(branch, branch.orders.links[i], kind, {}, state);
      try_schedules(branch, bounds, kind, state);
    }
    return true;
  }

  /// Finds out what fits: the least recomputation, and the least stage of ZeRO, that any plan of the branch
  /// has; false where none fits. Keeps what needs least as long as nothing has fitted. No schedule needs less
  /// than 1F1B does.
  constexpr bool settle_least(PlanConfiguration& settled, SearchState& state) const {
    const bool none = state.best_seconds == std::numeric_limits<double>::infinity();
    PlanConfiguration plan = settled;
    SearchSchedules legal;
    if (none)
      legal.find(model_, run_, space_, plan, true);
    int recomputation = 3, stage = 4;
    for (int kind = 0; kind < 3; ++kind)
      for (int zero = 0; zero <= 3; ++zero) {
        plan.recomputation = static_cast<Recomputation>(kind);
        plan.zero_stage = zero;
        if ((space_.recomputation && *space_.recomputation != plan.recomputation) ||
            !allows(space_.zero_stage, zero))
          continue;
        if (!none && zero >= stage && recomputation <= kind)
          continue;
        if (memory_of(plan) <= cluster_.chip.memory_bytes) {
          recomputation = std::min(recomputation, kind);
          stage = std::min(stage, zero);
        }
        if (none)
          legal.for_each(plan, ScheduleKind::any, [&](const PlanConfiguration& scheduled) {
            keep(state.smallest, memory_of(scheduled), scheduled);
          });
      }
    if (stage == 4)
      return false;
    settled.recomputation = static_cast<Recomputation>(recomputation);
    settled.zero_stage = stage;
    return true;
  }

  /// Less than any plan of the branch takes with schedules of a kind.
  [[nodiscard]] constexpr double bound_of(const Branch& branch, const PlanLinks& links, ScheduleKind kind,
                                          const Filling& filling, SearchState& state) const {
    if (kind == ScheduleKind::paired && branch.plan.pp == 1)
      return std::numeric_limits<double>::infinity();
    const SharedCalibration& shared = calibration_.shared;
    PlanConfiguration plan = branch.plan;
    LayerTraffic traffic;
    int kinds = 0; // of schedules: one that does not pair, one that does
    branch.schedules.for_each(plan, kind, [&](const PlanConfiguration& one) {
      const int bit = pairs_passes(one) ? 2 : 1;
      if ((kinds & bit) != 0)
        return;
      const LayerTraffic other = layer_traffic(model_, cluster_, run_, one, links, shared);
      traffic = kinds == 0 ? other : least_of(traffic, other);
      kinds |= bit;
    });
    if (kinds == 0)
      return std::numeric_limits<double>::infinity();
    plan.schedule = PlanSchedule::one_f_one_b; // each stage on one rank, which is the least
    const RankParameters held = rank_parameters(model_, size_, plan);
    PlanLinks at_once = links; // a larger microbatch has fewer sends
    if (!filling.own)
      at_once.pipeline.latency_seconds = 0;
    StepCost cost;
    ++state.evaluations;
    add_times(
        cost, model_, run_, plan, shared, branch.computed, traffic,
        [&](const PassCosts& passes, const StageSeconds& stages) {
          ScheduleTime least;
          bool first = true;
          branch.schedules.for_each(plan, kind, [&](PlanConfiguration one) {
            const double waiting = imbalance_seconds(run_, one, stages);
            if (!filling.own)
              one.microbatch = filling.plan.microbatch;
            ScheduleTime time = schedule_time(model_, run_, one, at_once, shared,
                                              filling.own ? passes : filling.passes, stages);
            time.imbalance_seconds = waiting;
            least = first ? time : least_of(least, time);
            first = false;
          });
          return least;
        },
        [&](double pass_seconds) {
          ShardingTime least;
          bool first = true;
          for (int zero = branch.plan.zero_stage; zero <= 3; ++zero) {
            if (!allows(space_.zero_stage, zero))
              continue;
            plan.zero_stage = zero;
            const ShardingTime time = sharding_time(cluster_, run_, plan, held, links, shared, pass_seconds);
            least = first ? time : least_of(least, time);
            first = false;
          }
          return least;
        });
    return cost.step_seconds * (1 - 1e-12);
  }

  /// Tries the schedules and shardings of a branch. Recomputation takes time and saves memory: with each of
  /// these the first that fits is the fastest.
  constexpr void try_schedules(const Branch& branch, const std::array<double, SearchOrders::most>& bounds,
                               ScheduleKind kind, SearchState& state) const {
    const SharedCalibration& shared = calibration_.shared;
    const SearchOrders& orders = branch.orders;
    branch.schedules.for_each(branch.plan, kind, [&](PlanConfiguration plan) {
      for (; plan.zero_stage <= 3; ++plan.zero_stage) {
        if (!allows(space_.zero_stage, plan.zero_stage))
          continue;
        bool fitting = false; // found out when first needed
        for (std::size_t i = 0; i < static_cast<std::size_t>(orders.count); ++i) {
          orders.settle(plan, i);
          if (bounds[i] > limit(state, complexity(plan)))
            continue;
          if (!fitting && !settle_recomputation(plan))
            break;
          fitting = true;
          if (bounds[i] > limit(state, complexity(plan)))
            continue;
          StepCost cost;
          ++state.evaluations;
          add_times(
              cost, model_, run_, plan, shared, branch.computed,
              layer_traffic(model_, cluster_, run_, plan, orders.links[i], shared),
              [&](const PassCosts& passes, const StageSeconds& stages) {
                return schedule_time(model_, run_, plan, orders.links[i], shared, passes, stages);
              },
              [&](double pass_seconds) {
                return sharding_time(cluster_, run_, plan, rank_parameters(model_, size_, plan),
                                     orders.links[i], shared, pass_seconds);
              });
          keep(state.fastest[static_cast<std::size_t>(complexity(plan))], cost.step_seconds, plan);
          state.best_seconds = std::min(state.best_seconds, cost.step_seconds);
        }
        plan.recomputation = branch.plan.recomputation;
      }
    });
  }

  /// Chooses the least recomputation that fits, if any does.
  [[nodiscard]] constexpr bool settle_recomputation(PlanConfiguration& plan) const {
    for (int kind = static_cast<int>(plan.recomputation); kind < 3; ++kind) {
      plan.recomputation = static_cast<Recomputation>(kind);
      if ((!space_.recomputation || *space_.recomputation == plan.recomputation) &&
          memory_of(plan) <= cluster_.chip.memory_bytes)
        return true;
    }
    return false;
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
  ModelSize size_;
  Calibration calibration_;
};

} // namespace detail

/// @brief The best plan for a run of a model on a cluster: of all legal plans that fit into memory and are at
/// most `space.tolerance` slower than the fastest one, the simplest.
///
/// Legal is what `problem_of` allows, in any order of the mesh's axes over the cluster's domains.
[[nodiscard]] constexpr Plan search(const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
                                    const SearchSpace& space = {}) {
  const detail::PlanSearch search(model, cluster, run, space);
  const detail::SearchTables tables = search.tables();
  detail::SearchState state;
  search.advance(tables, state, std::numeric_limits<std::int64_t>::max());
  return search.result(tables, state);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
