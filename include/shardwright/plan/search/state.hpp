// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The inputs of a search, and its progress.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/search/space.hpp>
#include <shardwright/plan/spec/configuration.hpp>

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

/// The tables of a search, built before it begins: the values that extents may have, and the groups, fastest
/// first.
struct SearchTables {
  static constexpr std::size_t most_groups = 512;
  Divisors stages{}, experts{}, batches{};
  std::array<SearchGroup, most_groups> groups{};
  int group_count = 0;
  std::int64_t evaluations = 0;
};

/// The minimum of a value so far. 0 means none, because g++ 12 loses other initial values of arrays once
/// constants have been made from them.
struct SearchCandidate {
  double measure = 0;
  PlanConfiguration plan{};
};

/// Keeps the candidate with the smaller measure.
constexpr void keep(SearchCandidate& kept, double measure, const PlanConfiguration& plan) {
  if (kept.measure == 0 || measure < kept.measure ||
      (measure == kept.measure && comes_first(plan, kept.plan)))
    kept = {measure, plan};
}

/// Candidates that a search remembers in the order in which it found them, and how much slower than the best
/// so far they may be.
inline constexpr std::size_t last_candidates = 20;
inline constexpr double near_best = 0.05;

/// The progress of a search. It may stop between two numbers of stages and resume later, so that a compiler
/// can spread it over several constants, each with its own limit on operations.
struct SearchState {
  int group = 0, expert = 0, stage = 0;
  double best_seconds = std::numeric_limits<double>::infinity();
  std::array<SearchCandidate, most_complexity + 1> fastest{}; ///< By complexity.
  std::array<SearchCandidate, last_candidates>
      last{};                 ///< Those near the best one at the time, as a ring buffer.
  std::int64_t near = 0;      ///< Number of those so far.
  SearchCandidate smallest{}; ///< In bytes, until anything fits.
  std::int64_t evaluations = 0;
  bool done = false;
};

/// Whether a value is free, or fixed to this one.
template <class Settled, class Value>
[[nodiscard]] constexpr bool allows(const std::optional<Settled>& settled, Value value) {
  return !settled || *settled == value;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
