// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The members that a schedule's policy must have.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <concepts>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The order of one rank, step by step: `next(step)` sets the next step, and returns false at the end.
///
/// The proof keeps one for every rank, first without an order, so it has a constructor without arguments.
template <class Cursor>
concept StepCursor = std::semiregular<Cursor> && requires(Cursor cursor, Step step) {
  { cursor.next(step) } -> std::same_as<bool>;
};

namespace detail {

template <class Policy>
concept HasPolicyMembers = requires(int ranks, int microbatches, int rank) {
  { Policy::name } -> std::convertible_to<std::string_view>;
  { Policy::rule(ranks, microbatches) } -> std::same_as<ScheduleRule>;
  { Policy::placement(ranks, microbatches) } -> std::same_as<StagePlacement>;
  Policy::cursor(ranks, microbatches, rank);
};

template <class Policy> [[nodiscard]] consteval bool has_step_cursor() {
  if constexpr (HasPolicyMembers<Policy>)
    return StepCursor<decltype(Policy::cursor(1, 1, 0))>;
  else
    return false;
}

/// Says what a policy lacks.
template <class Policy, bool members = HasPolicyMembers<Policy>, bool cursor = has_step_cursor<Policy>()>
struct PolicyOf {
  static_assert(
      members,
      "PipelineSchedule: a policy must have the static members name, rule(ranks, microbatches), placement(ranks, microbatches) and cursor(ranks, microbatches, rank) (add the one that the policy of PolicyOf in the trace lacks; OneFOneB is an example)");
  static_assert(
      cursor || !members,
      "PipelineSchedule: the cursor of a policy must have bool next(Step&), a constructor without arguments, and copies (give its members initial values and declare the constructor = default)");
};

} // namespace detail

/// @brief A policy of pipeline schedules: its rule, the placement of its stages, and the order of every rank.
///
/// Static members: `name`; `rule(ranks, microbatches)`, the rule that the numbers break, if any;
/// `placement(ranks, microbatches)`; `cursor(ranks, microbatches, rank)`, a StepCursor. `window(ranks,
/// microbatches)` is optional. All are constexpr if the compiler is to prove it.
template <class Policy>
concept SchedulePolicy = detail::HasPolicyMembers<Policy> && detail::has_step_cursor<Policy>();

} // namespace shardwright::inline SHARDWRIGHT_ABI
