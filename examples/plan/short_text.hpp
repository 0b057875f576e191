// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Numbers as reports and pages show them.

#include <shardwright/schedule/text/number_text.hpp>

#include <cmath>
#include <string>

namespace plan_example {

/// @brief A number with three or four digits.
[[nodiscard]] inline std::string short_text(double value) {
  const double size = std::fabs(value);
  return shardwright::number_text(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

} // namespace plan_example
