// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The caller's file, line and function, for compilers with and without std::source_location.

#include <shardwright/core/config.hpp>

#include <string>
#include <string_view>

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

  /// @brief "file:line", or an empty string if the location is unknown: also where a standard container made
  /// the call, as in `std::make_unique<Linear>(mesh, ...)`, since its line says nothing about the program.
  [[nodiscard]] std::string text() const { return text_after(""); }
  /// @brief The same after `words`, such as " at "; without a location an empty string.
  [[nodiscard]] std::string text_after(std::string_view words) const;
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE std::string SourceLocation::text_after(std::string_view words) const {
  if (line == 0 || std::string_view(file).find("/include/c++/") != std::string_view::npos)
    return {};
  return std::string(words) + file + ":" + std::to_string(line);
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
