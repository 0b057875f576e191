// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Why a plan is the best: what binds it, what the usual recipe gives, and where the pipeline ends.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/search.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief What a cluster or a run may have more of.
enum class Resource : std::uint8_t { memory, scale_up_bandwidth, scale_out_bandwidth, peak, tokens };
inline constexpr std::array<std::string_view, 5> resource_names{
    "memory per chip", "bandwidth inside a domain", "bandwidth between domains", "FLOP/s per chip",
    "tokens per step"};

/// @brief A cluster and a run with more of a resource.
struct Situation {
  ClusterSpec cluster{};
  RunSpec run{};
};
/// @param factor at least 1; of tokens a whole number.
[[nodiscard]] constexpr Situation with_more(const ClusterSpec& cluster, const RunSpec& run, Resource resource,
                                            double factor) {
  Situation out{cluster, run};
  switch (resource) {
  case Resource::memory:
    out.cluster.chip.memory_bytes *= factor;
    break;
  case Resource::scale_up_bandwidth:
    out.cluster.domains[0].bandwidth *= factor;
    break;
  case Resource::scale_out_bandwidth:
    for (std::size_t level = 1; level < static_cast<std::size_t>(cluster.domain_count); ++level)
      out.cluster.domains[level].bandwidth *= factor;
    break;
  case Resource::peak:
    out.cluster.chip.peak_bf16 *= factor;
    out.cluster.chip.peak_fp8 *= factor;
    out.cluster.chip.peak_fp4 *= factor;
    break;
  case Resource::tokens:
    out.run.sequences *= static_cast<std::int64_t>(factor);
    break;
  }
  return out;
}

/// @brief Time per token that the best plan saves with twice of each resource, as a share of its time.
///
/// What saves most binds; what saves nothing has slack. Costs one search for each resource.
[[nodiscard]] inline std::array<double, resource_names.size()>
gains(const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run, const Plan& best) {
  std::array<double, resource_names.size()> out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Situation more = with_more(cluster, run, static_cast<Resource>(i), 2);
    if (const Plan plan = search(model, more.cluster, more.run, {.tolerance = 0}); plan.found())
      out[i] = 1 - plan.cost.step_seconds / plan.cost.tokens / (best.cost.step_seconds / best.cost.tokens);
  }
  return out;
}

/// @brief The plan of the usual recipe: tensor parallel over the scale-up domain, as few 1F1B stages as fit
/// with any sharding of states, data parallel over the rest, experts inside the domain.
[[nodiscard]] inline Plan recipe(const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run) {
  const auto largest = [&](std::int64_t of) {
    int out = 1;
    for (int extent = 1; extent <= of && extent <= cluster.domains[0].chips; ++extent)
      if (of % extent == 0 && cluster.chips() % extent == 0)
        out = extent;
    return out;
  };
  SearchSpace space{.tp = largest(model.heads), .cp = 1, .schedule = PlanSchedule::one_f_one_b};
  space.ep = model.experts.used() ? largest(model.experts.count) : 1;
  Plan last;
  last.problem = PlanProblem::out_of_memory;
  for (int stages = 1; stages <= model.layers; ++stages) {
    space.pp = stages;
    if (const Plan plan = search(model, cluster, run, space); plan.found())
      return plan;
    else if (plan.problem == PlanProblem::out_of_memory)
      last = plan;
  }
  return last;
}

/// @brief The least factor of a resource at which the best plan has no pipeline; nothing where none up to
/// `most` does. By bisection, to 2% (of tokens: the powers of two).
///
/// The best plan of `space` is taken, with its tolerance: a pipeline ends where none is faster by more.
[[nodiscard]] inline std::optional<double> pipeline_ends(const ModelSpec& model, const ClusterSpec& cluster,
                                                         const RunSpec& run, Resource resource,
                                                         double most = 256, const SearchSpace& space = {}) {
  const auto without = [&](double factor) {
    const Situation more = with_more(cluster, run, resource, factor);
    const Plan plan = search(model, more.cluster, more.run, space);
    return plan.found() && plan.configuration.pp == 1;
  };
  double high = 1;
  while (!without(high)) {
    if (high *= 2; high > most)
      return {};
  }
  if (high == 1 || resource == Resource::tokens)
    return high;
  double low = high / 2;
  while (high / low > 1.02) {
    const double middle = std::sqrt(low * high);
    (without(middle) ? high : low) = middle;
  }
  return high;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
