// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Colours of passes and chunks that colour-blind readers can tell apart.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>

#include <array>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

struct Colour {
  int red = 0;
  int green = 0;
  int blue = 0;

  [[nodiscard]] std::string text() const {
    constexpr const char* digits = "0123456789abcdef";
    std::string out = "#";
    for (const int part : {red, green, blue}) {
      out += digits[part / 16];
      out += digits[part % 16];
    }
    return out;
  }
  /// Whether black is easier to read on it than white, by the luma of ITU-R BT.601.
  [[nodiscard]] constexpr bool light() const noexcept {
    return 299 * red + 587 * green + 114 * blue > 140000;
  }
};

[[nodiscard]] constexpr Colour mixed(Colour from, Colour to, double share) noexcept {
  const auto mix = [share](int a, int b) { return static_cast<int>(a + share * (b - a) + 0.5); };
  return {mix(from.red, to.red), mix(from.green, to.green), mix(from.blue, to.blue)};
}

/// Blue, orange, green and purple near those of Okabe and Ito ("Color Universal Design", 2008), which differ
/// for all common kinds of colour vision; later chunks are darker.
[[nodiscard]] constexpr Colour colour_of(Pass pass, int chunk, int chunks) noexcept {
  constexpr std::array<std::array<Colour, 2>, 4> ends{{{{{176, 214, 243}, {32, 110, 178}}},
                                                       {{{252, 205, 145}, {196, 92, 0}}},
                                                       {{{150, 222, 198}, {0, 124, 92}}},
                                                       {{{241, 196, 223}, {158, 62, 118}}}}};
  const std::array<Colour, 2>& pair = ends[static_cast<std::size_t>(pass)];
  return mixed(pair[0], pair[1], chunks < 2 ? 0.4 : static_cast<double>(chunk) / (chunks - 1));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
