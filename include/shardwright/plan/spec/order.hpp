// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The order in which the axes of a plan's mesh are placed on the chips, from neighbours outwards.

#include <shardwright/core/config.hpp>

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

[[nodiscard]] constexpr auto all_plan_orders() noexcept {
  std::array<std::array<PlanAxis, 4>, plan_order_count> orders{};
  std::size_t count = 0;
  for (int code = 0; code < 4 * 4 * 4 * 4; ++code) {
    const std::array<int, 4> axes{code / 64, code / 16 % 4, code / 4 % 4, code % 4};
    if (((1 << axes[0]) | (1 << axes[1]) | (1 << axes[2]) | (1 << axes[3])) != 15)
      continue;
    for (std::size_t i = 0; i < 4; ++i)
      orders[count][i] = static_cast<PlanAxis>(axes[i]);
    ++count;
  }
  return orders;
}
inline constexpr auto plan_orders = all_plan_orders();

} // namespace detail

/// @brief The axes of an order, from inner to outer.
[[nodiscard]] constexpr const std::array<PlanAxis, 4>& axes_of(PlanOrder order) noexcept {
  return detail::plan_orders[static_cast<std::size_t>(order)];
}

/// @brief The order with these axes from inner to outer; each must occur once.
[[nodiscard]] constexpr PlanOrder plan_order(PlanAxis first, PlanAxis second, PlanAxis third,
                                             PlanAxis fourth) noexcept {
  int number = 0;
  while (number + 1 < plan_order_count &&
         axes_of(static_cast<PlanOrder>(number)) != std::array<PlanAxis, 4>{first, second, third, fourth})
    ++number;
  return static_cast<PlanOrder>(number);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
