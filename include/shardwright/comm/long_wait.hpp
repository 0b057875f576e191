// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The notice that a rank has been waiting for others for a while.

#include <shardwright/comm/failure.hpp>
#include <shardwright/comm/stderr_line.hpp>
#include <shardwright/comm/waiting.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A wait that lasts longer than LaunchOptions::notice.
struct LongWait {
  int rank = -1;             ///< World rank that waits.
  std::string call;          ///< As formatted by describe().
  std::string group;         ///< Its name.
  std::vector<int> missing;  ///< World ranks for which it waits.
  std::string whereabouts{}; ///< Their last operations.
  std::chrono::nanoseconds waited{};
  std::chrono::nanoseconds deadline{};

  [[nodiscard]] std::string text() const {
    return "rank " + std::to_string(rank) + " has waited " + time_text(waited) + " for " +
           (missing.empty() ? "other ranks" : ranks_text(missing)) + " in " + call + " on group " + group +
           (whereabouts.empty() ? "" : "; " + whereabouts) + " (it gives up after " + time_text(deadline) +
           ")";
  }
  /// Writes one line to stderr. @throws std::bad_alloc.
  void print() const { detail::write_stderr_line(text()); }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
