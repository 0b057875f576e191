// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Numbers as short text, the same in every locale.

#include <shardwright/core/config.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A number with at most `digits` digits after the point, without trailing zeros.
[[nodiscard]] inline std::string number_text(double value, int digits) {
  std::array<char, 400> text; // 309 digits before the point at most
  const auto result =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits);
  std::string out(text.data(), result.ptr);
  if (out.find('.') != std::string::npos) {
    out.erase(out.find_last_not_of('0') + 1);
    if (out.back() == '.')
      out.pop_back();
  }
  return out == "-0" ? "0" : out;
}

/// @brief A share of 1 in percent with one digit after the point, such as "27.3 %".
[[nodiscard]] inline std::string percent_text(double share) { return number_text(100 * share, 1) + " %"; }

/// @brief The smallest of 1, 2, 5, 10, 20, ... that is at least `least`, for the ticks of an axis.
[[nodiscard]] inline double round_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-12))
      return factor * power;
  return 10 * power;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
