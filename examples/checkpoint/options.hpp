// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The command line of checkpoint as a value.

#include <filesystem>
#include <optional>
#include <string>

namespace checkpoint_tool {

/// @brief A command and the checkpoints that it applies to.
struct Options {
  std::string command;
  std::filesystem::path path;
  std::filesystem::path other; ///< The second checkpoint of diff, the file of reshard.
  bool weights = false;        ///< Ignore the optimizer state.
};

/// @brief Options, or a message and the exit code: 0 after --help, 2 after an error.
struct ParseResult {
  std::optional<Options> options;
  std::string message;
  int exit_code = 0;
};

/// @brief Reads the command line; never ends the program.
[[nodiscard]] ParseResult parse(int argc, const char* const* argv);

} // namespace checkpoint_tool
