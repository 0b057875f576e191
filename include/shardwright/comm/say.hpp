// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A line on the standard error stream, and text of other processes made fit for one.

#include <shardwright/core/config.hpp>

#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Text with control characters spelled out, such as \x1b, so that it cannot steer a terminal; line ends and
/// tabs stay.
[[nodiscard]] inline std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  unsigned before = 0;
  for (const char letter : text) {
    const unsigned code = static_cast<unsigned char>(letter);
    // In UTF-8, the second set of control characters follows this byte.
    const bool steers = code < 0x20 || code == 0x7f || (before == 0xc2 && code >= 0x80 && code < 0xa0);
    before = code;
    if (!steers || letter == '\n' || letter == '\t') {
      out += letter;
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", code);
    out += escaped;
  }
  return out;
}

/// "shardwright: ..." as one write. On a terminal it begins a new line, since a line of progress may be open
/// there.
[[nodiscard]] inline std::string report_line(std::string_view sentence, bool terminal) {
  return (terminal ? "\nshardwright: " : "shardwright: ") + std::string(sentence) + "\n";
}

/// Writes a report to the standard error stream. mpirun gives its ranks a terminal for their output, and
/// mixes the two.
inline void say(std::string_view sentence) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1 || ::isatty(STDOUT_FILENO) == 1;
  std::fputs(report_line(sentence, terminal).c_str(), stderr);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
