// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The caller's file, line and function, for compilers with and without std::source_location.

#include <shardwright/core/config.hpp>

#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The source location of a call, captured by a defaulted last argument: `SourceLocation where =
/// SourceLocation::current()`.
struct SourceLocation {
  const char* file = "";
  int line = 0;
  const char* function = "";

  /// @brief The location of the call that uses this as a default argument.
  static constexpr SourceLocation current(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                          const char* function = __builtin_FUNCTION()) noexcept {
    return {file, line, function};
  }

  /// @brief "file:line", or an empty string if the location is unknown.
  [[nodiscard]] std::string text() const {
    return line == 0 ? std::string() : std::string(file) + ":" + std::to_string(line);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
