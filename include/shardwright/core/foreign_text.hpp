// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Escapes text from files and other processes for use in error messages.

#include <shardwright/core/config.hpp>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Text with control characters spelled out, such as \x1b, so that it cannot control a terminal; line ends
/// and tabs stay in text of several lines.
[[nodiscard]] inline std::string printable(std::string_view text, bool several_lines = true) {
  std::string out;
  out.reserve(text.size());
  unsigned before = 0;
  for (const char letter : text) {
    const unsigned code = static_cast<unsigned char>(letter);
    // In UTF-8, the second set of control characters follows this byte.
    const bool steers = code < 0x20 || code == 0x7f || (before == 0xc2 && code >= 0x80 && code < 0xa0);
    before = code;
    if (!steers || (several_lines && (letter == '\n' || letter == '\t'))) {
      out += letter;
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", code);
    out += escaped;
  }
  return out;
}

/// The text in quotes, printable and on one line; if it is longer than 60 bytes, it is cut and ends in dots.
[[nodiscard]] inline std::string quoted_text(std::string_view text) {
  constexpr std::size_t most = 60;
  // Appended to, because g++ 12 warns of `"'" + std::string(...)` once it is inlined.
  std::string out = "'";
  out += printable(text.substr(0, most), false);
  out += text.size() > most ? "...'" : "'";
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
