// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The end of a program: checks that everything it printed was written.

#include <shardwright/core/config.hpp>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>

#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The exit code of a program that has finished printing: `code`, or 1 instead of 0 if standard output
/// did not take everything, as on a full disk; standard error then says so.
///
/// Printed text is buffered, and errors in the flush at process exit go unnoticed. Call this after launch(),
/// while no other thread prints.
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
