// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The larger of two differences, for tests that must not ignore a NaN as std::max does.

#include <algorithm>
#include <cmath>
#include <limits>

namespace shardwright_test {

/// @brief The larger of two numbers, infinite if one of them is not a number.
[[nodiscard]] inline double larger(double one, double other) {
  return std::isnan(one) || std::isnan(other) ? std::numeric_limits<double>::infinity()
                                              : std::max(one, other);
}

} // namespace shardwright_test
