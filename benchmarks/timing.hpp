// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The clock and the median of all benchmarks.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace benchmark {

using Clock = std::chrono::steady_clock;

[[nodiscard]] inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// @brief The median of at least one value; for an even number, the larger of the middle two.
[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

} // namespace benchmark
