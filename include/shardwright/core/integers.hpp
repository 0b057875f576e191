// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Integer arithmetic that rounds up or reports overflow, for shapes, meshes and byte counts.

#include <shardwright/core/config.hpp>

#include <cstdint>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Smallest integer that is at least value / divisor; value >= 0 and divisor > 0.
[[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::int64_t ceil_div(std::int64_t value,
                                                                   std::int64_t divisor) noexcept {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

/// @brief A product, and whether it fits 64 bits.
struct CheckedInteger {
  std::int64_t value = 0;
  bool fits = true;
};

/// @brief left * right for factors that are not negative; `fits` is false if the product exceeds 2^63 - 1.
[[nodiscard]] constexpr CheckedInteger checked_multiply(std::int64_t left, std::int64_t right) noexcept {
  if (left == 0 || right == 0)
    return {0, true};
  if (left > std::numeric_limits<std::int64_t>::max() / right)
    return {0, false};
  return {left * right, true};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
