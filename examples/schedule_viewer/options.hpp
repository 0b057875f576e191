// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The command line of schedule_viewer as a value.

#include <shardwright/schedule/pass_costs.hpp>

#include <filesystem>
#include <optional>
#include <string>

namespace schedule_viewer {

/// @brief The schedule to show, its costs, and the form to show it in.
struct Options {
  std::string schedule = "1f1b";
  int ranks = 4;
  int microbatches = 8;
  int chunks = 2;
  std::filesystem::path csv; ///< Read instead of a published schedule if not empty.
  shardwright::PassCosts costs;

  std::filesystem::path svg;    ///< Written if not empty.
  std::filesystem::path to_csv; ///< Written if not empty.
  bool text = false;            ///< Print the table.
  int columns = 120;            ///< Characters of a line of it.
};

/// @brief Options, or a message and the exit code: 0 after --help, 2 after an error.
struct ParseResult {
  std::optional<Options> options;
  std::string message;
  int exit_code = 0;
};

/// @brief Reads the command line; never ends the program.
[[nodiscard]] ParseResult parse(int argc, const char* const* argv);

} // namespace schedule_viewer
