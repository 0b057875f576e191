// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Writes lines to stderr.

#include <shardwright/core/foreign_text.hpp>

#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// "shardwright: ..." as one write. On a terminal it begins a new line, since a line of progress may be open
/// there.
[[nodiscard]] inline std::string report_line(std::string_view sentence, bool terminal) {
  return (terminal ? "\nshardwright: " : "shardwright: ") + std::string(sentence) + "\n";
}

/// Whether output may reach a terminal: mpirun gives its ranks one for stdout, and mixes the two streams.
[[nodiscard]] inline bool on_terminal() noexcept {
  return ::isatty(STDERR_FILENO) == 1 || ::isatty(STDOUT_FILENO) == 1;
}

/// Writes a report to stderr.
inline void write_stderr_line(std::string_view sentence) {
  std::fputs(report_line(sentence, on_terminal()).c_str(), stderr);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
