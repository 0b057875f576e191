// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief FixedPoint: an integer number of small units, whose sums do not depend on the order.

#include <shardwright/core/config.hpp>

#include <cmath>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A multiple of 2^-32, in 64 bits: the element in which reproducible training sums gradients.
///
/// Sums of integers are the same in any order, so neither the mesh nor the schedule shows in them. The unit
/// suits gradients of a *sum* of token losses: a float of 2^-8 or more is exact, a smaller one is rounded to
/// 2.3e-10. A term is below 8,192, and no sum of 2^17 terms exceeds the range of sums.
struct FixedPoint {
  static constexpr int fraction_bits = 32;
  /// Terms of this size and more do not fit: infinite and NaN ones, too.
  static constexpr float limit = 0x1p13F;

  /// Sums fit from -unit_limit to below unit_limit; others do not: a step shows them, although integers may
  /// wrap beyond.
  static constexpr std::int64_t unit_limit = std::int64_t{1} << 62;

  std::int64_t units = 0;

  /// @brief The nearest multiple; ties to even. @pre fits(number)
  [[nodiscard]] static FixedPoint of(float number) noexcept {
    return {static_cast<std::int64_t>(std::nearbyint(static_cast<double>(number) * 0x1p32))};
  }
  /// @brief Whether a number may be a term; false for NaN.
  [[nodiscard]] static constexpr bool fits(float number) noexcept {
    return number > -limit && number < limit;
  }
  /// @brief The nearest float.
  [[nodiscard]] explicit operator float() const noexcept { return static_cast<float>(units) * 0x1p-32F; }

  FixedPoint& operator+=(FixedPoint other) noexcept {
    units = static_cast<std::int64_t>(static_cast<std::uint64_t>(units) +
                                      static_cast<std::uint64_t>(other.units)); // it may wrap
    return *this;
  }
  [[nodiscard]] bool operator==(const FixedPoint&) const = default;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
