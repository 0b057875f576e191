// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The cheapest sequence of collectives from one layout value to another.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/detail/transition_search.hpp>
#include <shardwright/layout/transition_step.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Number of axes that are placed differently.
[[nodiscard]] constexpr int changed_axes(const LayoutValue& from, const LayoutValue& to) {
  return detail::changes_between(from, to).count;
}

/// @brief The cheapest moves from one layout to another over the same table: fewest bytes at a nominal extent
/// of 2 per axis, then fewest collectives. Every axis moves directly to its final place, or is replicated
/// first.
///
/// Preconditions: equal tensor ranks, no transition_fault on any axis, at most max_changed_axes changed axes.
[[nodiscard]] constexpr TransitionPlan plan_transition(const LayoutValue& from, const LayoutValue& to) {
  const detail::TransitionChange change = detail::changes_between(from, to);
  switch (change.count) {
  case 0:
    return {};
  case 1:
    return detail::search_plan<1>(from, to, change);
  case 2:
    return detail::search_plan<2>(from, to, change);
  case 3:
    return detail::search_plan<3>(from, to, change);
  case 4:
    return detail::search_plan<4>(from, to, change);
  case 5:
    return detail::search_plan<5>(from, to, change);
  default:
    return detail::search_plan<6>(from, to, change);
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
