// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The order in which the axes of a plan's mesh are placed on the chips, from neighbours outwards.

#include <shardwright/core/config.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief An axis of a plan's mesh, in the usual order from inner to outer.
enum class PlanAxis : std::uint8_t { tp, cp, dp, pp };

/// @brief The index of an order of the four axes among all 24 in lexicographic order, so that the usual one
/// comes first.
///
/// The ranks of an inner axis are neighbours and share a domain as far as it extends; those of an outer axis
/// are as many ranks apart as the product of the extents inside it.
enum class PlanOrder : std::uint8_t { usual = 0 };
inline constexpr int plan_order_count = 24;

namespace detail {

inline constexpr auto plan_orders = [] {
  std::array<std::array<PlanAxis, 4>, plan_order_count> orders{};
  std::array<PlanAxis, 4> axes{PlanAxis::tp, PlanAxis::cp, PlanAxis::dp, PlanAxis::pp};
  for (std::array<PlanAxis, 4>& order : orders) {
    order = axes;
    std::next_permutation(axes.begin(), axes.end());
  }
  return orders;
}();

} // namespace detail

/// @brief The axes of an order, from inner to outer.
[[nodiscard]] constexpr const std::array<PlanAxis, 4>& axes_of(PlanOrder order) noexcept {
  return detail::plan_orders[static_cast<std::size_t>(order)];
}

/// @brief The order with these axes from inner to outer; each must occur once.
[[nodiscard]] constexpr PlanOrder plan_order(PlanAxis first, PlanAxis second, PlanAxis third,
                                             PlanAxis fourth) noexcept {
  const std::array<PlanAxis, 4> order{first, second, third, fourth};
  const auto* const found = std::find(detail::plan_orders.begin(), detail::plan_orders.end(), order);
  return static_cast<PlanOrder>(found - detail::plan_orders.begin());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
