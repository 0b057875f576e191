// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What a search knows before it begins, and where it stands.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/plan_configuration.hpp>
#include <shardwright/plan/search_space.hpp>
#include <shardwright/plan/step_times.hpp>
#include <shardwright/plan/traffic_cost.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Extents of tp and cp, and a time that no plan with them can beat.
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

/// Where a search stands. It may stop between two numbers of stages and go on later, so that a compiler can
/// spread it over constants, each with a limit of its own on the operations that it takes.
struct SearchState {
  int group = 0, expert = 0, stage = 0;
  double best_seconds = std::numeric_limits<double>::infinity();
  std::array<SearchCandidate, most_complexity + 1> fastest{}; ///< By complexity.
  SearchCandidate smallest{};                                 ///< In bytes, until anything fits.
  std::int64_t evaluations = 0;
  bool done = false;
};

[[nodiscard]] constexpr bool allows(const std::optional<int>& settled, std::int64_t value) {
  return !settled || *settled == value;
}

/// The least of each part of two.
[[nodiscard]] constexpr TrafficCost least_of(const TrafficCost& left, const TrafficCost& right) {
  return {std::min(left.bytes, right.bytes), std::min(left.seconds, right.seconds),
          std::min(left.exposed_seconds, right.exposed_seconds)};
}
[[nodiscard]] constexpr LayerTraffic least_of(const LayerTraffic& left, const LayerTraffic& right) {
  return {least_of(left.tensor, right.tensor), least_of(left.context, right.context),
          least_of(left.expert, right.expert)};
}
[[nodiscard]] constexpr ScheduleTime least_of(const ScheduleTime& left, const ScheduleTime& right) {
  return {std::min(left.bubble_seconds, right.bubble_seconds),
          std::min(left.imbalance_seconds, right.imbalance_seconds), least_of(left.sends, right.sends)};
}
[[nodiscard]] constexpr ShardingTime least_of(const ShardingTime& left, const ShardingTime& right) {
  return {least_of(left.data, right.data), std::min(left.optimizer_seconds, right.optimizer_seconds)};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
