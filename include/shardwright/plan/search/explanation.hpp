// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Why a plan is the best: its bottleneck, the plan of the usual recipe, and the amounts of a resource
/// from which on no pipeline is needed.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/search/searches.hpp>
#include <shardwright/plan/search/simulated.hpp>
#include <shardwright/plan/search/situation.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The resources that may be the bottleneck: all but the number of chips, since more of them are
/// always faster.
inline constexpr std::size_t binding_resources = 6;

/// @brief The fraction of its time per token that the fastest plan saves if each resource is doubled: from 0,
/// also if there is no plan, to 1.
///
/// The resource that saves most is the bottleneck; one that saves nothing has slack. Compares the fastest
/// plans of all, whatever the tolerance of `space`. Takes a search for each resource.
[[nodiscard]] inline std::array<double, binding_resources> gains(Searches& searches, const Situation& now,
                                                                 const SearchSpace& space = {}) {
  const auto seconds_per_token = [&](const Situation& at) {
    return searches.of(at, space).state.best_seconds / static_cast<double>(at.run.tokens());
  };
  std::array<double, binding_resources> out{};
  if (!searches.of(now, space).best.found())
    return out;
  // A negative saving counts as none: in a larger domain one network carries the traffic of two, which may
  // take longer.
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = std::max(0.0, 1 - seconds_per_token(with_more(now, static_cast<Resource>(i), 2)) /
                                   seconds_per_token(now));
  return out;
}

/// @brief Other plans that the search of a situation found beside the best one: the fastest of each
/// complexity, those that lose least first.
[[nodiscard]] inline std::vector<Plan> runners_up(Searches& searches, const Situation& now,
                                                  const SearchSpace& space = {}, std::size_t most = 3) {
  const FinishedSearch& ended = searches.of(now, space);
  std::vector<Plan> out;
  for (const detail::SearchCandidate& one : ended.state.fastest)
    if (one.measure > 0 && one.plan != ended.best.configuration)
      out.push_back({PlanProblem::none, one.plan, simulated_cost(searches.model(), now, one.plan), 0});
  std::sort(out.begin(), out.end(), [](const Plan& left, const Plan& right) {
    return left.cost.step_seconds < right.cost.step_seconds;
  });
  if (out.size() > most)
    out.resize(most);
  return out;
}

/// @brief The plan of the usual recipe. On GPUs: tensor parallel over the scale-up domain, eight chips of a
/// larger one, as few 1F1B stages as fit with any sharding of states, data parallel over the rest, experts
/// inside the domain. On a torus: no stages, ZeRO-3, and tensor parallel as far as that helps.
[[nodiscard]] inline Plan recipe(Searches& searches, const Situation& now) {
  const ModelSpec& model = searches.model();
  const ClusterSpec& cluster = now.cluster;
  if (cluster.domains[0].torus_dimensions > 0)
    return searches.of(now, {.cp = 1, .pp = 1, .zero_stage = 3}).best;
  const auto largest = [&](std::int64_t of, std::int64_t most) {
    int out = 1;
    const Divisors extents = divisors_of(of);
    for (int i = 0; i < extents.count && extents[i] <= most; ++i)
      if (cluster.chips() % extents[i] == 0)
        out = static_cast<int>(extents[i]);
    return out;
  };
  SearchSpace space{.tp = largest(model.heads, std::min<std::int64_t>(8, cluster.domains[0].chips)),
                    .cp = 1,
                    .schedule = PlanSchedule::one_f_one_b};
  space.ep = model.experts.used() ? largest(model.experts.count, cluster.domains[0].chips) : 1;
  Plan last;
  last.problem = PlanProblem::out_of_memory;
  const Divisors stages = divisors_of(cluster.chips());
  for (int i = 0; i < stages.count && stages[i] <= model.stacked_layers(); ++i) {
    space.pp = static_cast<int>(stages[i]);
    if (const Plan& plan = searches.of(now, space).best; plan.found())
      return plan;
    else if (plan.problem == PlanProblem::out_of_memory)
      last = plan;
  }
  return last;
}

/// @brief The smallest factor of a resource at which the best plan has no pipeline, within 2%; nothing if
/// every one up to `most` has one.
///
/// Uses the best plan in `space`, with its tolerance: a pipeline is dropped if it is not faster by more than
/// that.
[[nodiscard]] inline std::optional<double> pipeline_ends(Searches& searches, const Situation& now,
                                                         Resource resource, double most = 256,
                                                         const SearchSpace& space = {}) {
  return detail::least_factor(now, resource, most,
                              [&](const Situation& at) { return searches.needs_no_pipeline(at, space); });
}

/// @brief The smallest factor of a resource at which there is a plan at all, within 2%; nothing if there is
/// none up to `most`.
[[nodiscard]] inline std::optional<double> plan_begins(Searches& searches, const Situation& now,
                                                       Resource resource, double most = 256,
                                                       const SearchSpace& space = {}) {
  return detail::least_factor(now, resource, most,
                              [&](const Situation& at) { return searches.of(at, space).best.found(); });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
