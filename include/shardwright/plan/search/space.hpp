// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The choices that a search has, and the simpler one of two plans.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/configuration.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The values that are fixed before a search. A search fills in those that are left empty.
struct SearchSpace {
  std::optional<int> tp{};
  std::optional<int> cp{};
  std::optional<int> pp{};
  std::optional<int> ep{};
  std::optional<int> dp{};
  std::optional<int> chunks{}; ///< Stages per rank: above 1, only the interleaved schedules are left.
  std::optional<int> microbatch{};
  std::optional<int> zero_stage{};
  std::optional<int> shard_ranks{}; ///< That share what ZeRO shards (HSDP), of a model without experts.
  std::optional<PlanSchedule> schedule{};
  std::optional<Recompute> recomputation{};
  std::optional<PlanOrder> order{};
  std::optional<bool> experts_outside{};
  RecomputedOperations recomputed{}; ///< That a selective recomputation runs again; empty for the usual ones.
  double headroom = 0.08;  ///< Part of a chip's memory that a plan leaves free: fragments, peaks, forecasts.
  double tolerance = 0.01; ///< Plans that are at most this much slower count as equal.
  friend constexpr bool operator==(const SearchSpace&, const SearchSpace&) = default;
};

/// @brief Returns whether a search tries an interleaved schedule with this many stages per rank if their
/// number is not fixed: up to four, and more if all of them have as many layers (embedding and output matrix
/// may count as a layer each).
[[nodiscard]] constexpr bool tries_chunks(int layers, int ranks, int chunks) noexcept {
  return chunks <= 4 || layers % (ranks * chunks) == 0 || (layers + 2) % (ranks * chunks) == 0;
}

/// @brief The complexity of a plan to a reader: one for each axis and for recomputation, two for a pipeline,
/// one to three for a schedule beyond GPipe and 1F1B, the stage of ZeRO, and one for an order of the mesh
/// that is not the usual one.
[[nodiscard]] constexpr int complexity(const PlanConfiguration& plan) noexcept {
  constexpr std::array<int, plan_schedule_count> of_schedule{0, 0, 1, 1, 1, 2, 2, 3, 2};
  const int pipeline = plan.pp > 1 ? 2 + of_schedule[static_cast<std::size_t>(plan.schedule)] : 0;
  return (plan.tp > 1 ? 1 : 0) + (plan.cp > 1 ? 1 : 0) + (plan.ep > 1 ? 1 : 0) + pipeline + plan.zero_stage +
         (plan.recomputation != Recompute::none ? 1 : 0) +
         (plan.order != PlanOrder::usual || plan.experts_outside ? 1 : 0);
}
/// @brief The highest complexity that there is.
inline constexpr int most_complexity = 13;

namespace detail {

/// Returns whether the first of two plans of equal complexity and time comes first: lower extents,
/// inner axes before outer ones.
[[nodiscard]] constexpr bool comes_first(const PlanConfiguration& left, const PlanConfiguration& right) {
  const auto key = [](const PlanConfiguration& plan) {
    return std::array<std::int64_t, 11>{plan.pp,
                                        plan.cp,
                                        plan.tp,
                                        plan.ep,
                                        plan.zero_stage,
                                        static_cast<int>(plan.recomputation),
                                        static_cast<int>(plan.schedule),
                                        plan.chunks,
                                        plan.microbatch,
                                        plan.experts_outside ? 1 : 0,
                                        static_cast<int>(plan.order)};
  };
  return key(left) < key(right);
}

} // namespace detail

/// @brief The divisors of a number in ascending order; 256 at most, which is more than any number below two
/// million has.
struct Divisors {
  static constexpr std::size_t most = 256;
  std::array<std::int64_t, most> values{};
  int count = 0;

  [[nodiscard]] constexpr std::int64_t operator[](int index) const {
    return values[static_cast<std::size_t>(index)];
  }
};
[[nodiscard]] constexpr Divisors divisors_of(std::int64_t number) {
  Divisors out;
  const auto push = [&out](std::int64_t value) {
    if (out.count < static_cast<int>(out.values.size()))
      out.values[static_cast<std::size_t>(out.count++)] = value;
  };
  std::int64_t root = 0;
  for (std::int64_t value = 1; value * value <= number; root = value++)
    if (number % value == 0)
      push(value);
  for (std::int64_t value = root; value > 0; --value)
    if (number % value == 0 && number / value != value)
      push(number / value);
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
