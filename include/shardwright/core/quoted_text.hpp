// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What somebody else wrote, as an error may show it.

#include <shardwright/core/config.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The text in quotes: its beginning where it is long, and a question mark for what a terminal could take for
/// a command. Bytes from 128 up, as of UTF-8, stay.
[[nodiscard]] inline std::string quoted_text(std::string_view text) {
  constexpr std::size_t most = 60;
  std::string out = "'" + std::string(text.substr(0, most)) + (text.size() > most ? "..." : "") + "'";
  for (char& letter : out)
    if (static_cast<unsigned char>(letter) < 32 || letter == 127)
      letter = '?';
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
