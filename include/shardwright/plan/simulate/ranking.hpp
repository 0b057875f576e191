// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Ranks plans by their simulated step times.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/step_times.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/simulate/simulate_step.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A plan and its step simulated with shared links.
struct SimulatedRank {
  Plan plan{};
  double seconds = 0;

  /// @brief The simulated time over the predicted one, both without jitter.
  [[nodiscard]] double over_cost() const {
    return seconds / (plan.cost.step_seconds - plan.cost.straggler_seconds);
  }
};

/// @brief Simulates plans in order, and returns them fastest first.
///
/// Stops before the forward passes of all plans together exceed `most_passes`, but gives the first plan up to
/// `most_of_first`: nothing is simulated if it has more. A pass takes about two microseconds.
/// @throws InvalidArgument if a plan cannot run for reasons other than memory.
[[nodiscard]] inline std::vector<SimulatedRank>
rank_by_simulation(const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
                   std::span<const Plan> plans, std::int64_t most_passes = 10'000,
                   std::int64_t most_of_first = 150'000) {
  std::vector<SimulatedRank> out;
  std::int64_t passes = 0;
  for (const Plan& plan : plans) {
    const PlanConfiguration& how = plan.configuration;
    passes += static_cast<std::int64_t>(microbatches_of(run, how)) * how.pp *
              (how.pp > 1 ? chunks_of(how.schedule, how.chunks) : 1);
    if (passes > (out.empty() ? most_of_first : most_passes))
      break;
    out.push_back({plan, simulate_step(model, cluster, run, how).step_seconds});
  }
  std::stable_sort(out.begin(), out.end(), [](const SimulatedRank& left, const SimulatedRank& right) {
    return left.seconds < right.seconds;
  });
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
