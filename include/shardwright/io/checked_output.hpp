// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The end of a program: whether all that it printed has arrived.

#include <shardwright/core/config.hpp>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>

#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The exit code of a program that prints no more: `code`, or 1 in place of 0, with a sentence on
/// standard error, where standard output took less than was printed, as on a full disk.
///
/// What is printed waits in a buffer, and nobody looks at how the end of the process writes it. Call it after
/// launch(), while no other thread prints.
[[nodiscard]] inline int checked_output(std::string_view program, int code) {
  errno = 0;
  std::cout.flush();
  bool failed = !std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  int reason = failed ? errno : 0;
  // Some file systems report a full disk only when the file is closed.
  if (const int copy = ::dup(STDOUT_FILENO); copy >= 0 && ::close(copy) != 0) {
    failed = true;
    reason = errno;
  }
  if (!failed)
    return code;
  std::cerr << program << ": standard output must accept all output, but a part was lost"
            << (reason == 0 ? std::string() : ", " + std::generic_category().message(reason))
            << " (free some space, or print to another file)" << std::endl;
  return code == 0 ? 1 : code;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
