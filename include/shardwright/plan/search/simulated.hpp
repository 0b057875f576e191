// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Replaces the times of a search's candidates by those of their simulated steps.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/evaluate.hpp>
#include <shardwright/plan/cost/pipeline_shape.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/cost/step_times.hpp>
#include <shardwright/plan/search/bounds.hpp>
#include <shardwright/plan/search/situation.hpp>
#include <shardwright/plan/search/space.hpp>
#include <shardwright/plan/search/state.hpp>
#include <shardwright/plan/simulate/step_seconds.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Seconds of a plan's step if it is simulated, with jitter. Without a pipeline they are those of its cost.
[[nodiscard]] inline double simulated_seconds(const SearchInput& in, const SearchCandidate& one) {
  if (one.plan.pp == 1)
    return one.measure;
  return step_seconds_unshared(in.model, in.cluster, in.run, one.plan) *
         (1 + in.calibration.shared.jitter * doublings_above_eight(in.cluster.chips()));
}

/// Simulates candidates: first the choice by cost, then those of lower cost first, down to those that are 5%
/// slower than the fastest one so far. Once their forward passes together are more than `most_passes`,
/// further pipelines are forgotten.
inline void simulate_candidates(const SearchInput& in, SearchState& state,
                                std::int64_t most_passes = 10'000) {
  std::vector<SearchCandidate> candidates;
  const double limit = state.best_seconds * (1 + in.space.tolerance);
  const auto lower_cost = [](const SearchCandidate& left, const SearchCandidate& right) {
    return left.measure < right.measure;
  };
  const auto add = [&](const auto& found) {
    for (const SearchCandidate& one : found)
      if (one.measure > 0 && std::none_of(candidates.begin(), candidates.end(),
                                          [&](const auto& other) { return other.plan == one.plan; }))
        candidates.push_back(one);
  };
  add(state.fastest); // by complexity
  const auto choice = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const SearchCandidate& one) { return one.measure <= limit; });
  if (choice == candidates.end())
    return;
  std::iter_swap(candidates.begin(), choice);
  add(state.last);
  std::stable_sort(candidates.begin() + 1, candidates.end(), lower_cost);
  state.fastest = {};
  state.best_seconds = std::numeric_limits<double>::infinity();
  for (const SearchCandidate& one : candidates) {
    double seconds = one.measure;
    if (one.plan.pp > 1 && seconds <= state.best_seconds * (1 + near_best)) {
      const std::int64_t ranks = one.plan.pp, chunks = chunks_of(one.plan.schedule, one.plan.chunks);
      most_passes -=
          std::min(static_cast<std::int64_t>(microbatches_of(in.run, one.plan)), 16 * ranks) * ranks * chunks;
      if (most_passes < 0 && &one != &candidates.front())
        continue;
      seconds = simulated_seconds(in, one);
    }
    keep(state.fastest[static_cast<std::size_t>(complexity(one.plan))], seconds, one.plan);
    state.best_seconds = std::min(state.best_seconds, seconds);
  }
}

} // namespace detail

/// @brief The cost of a plan, but with the seconds of its simulated step, as `Searches` gives it.
[[nodiscard]] inline StepCost simulated_cost(const ModelSpec& model, const Situation& at,
                                             const PlanConfiguration& plan) {
  const StepCost cost = evaluate(model, at.cluster, at.run, plan);
  return cost.lasting(detail::simulated_seconds({model, at.cluster, at.run, {}}, {cost.step_seconds, plan}));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
