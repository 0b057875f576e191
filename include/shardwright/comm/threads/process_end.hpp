// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Ends a process of thread ranks that cannot continue, with a report on stderr and a nonzero exit
/// code.

#include <shardwright/comm/stderr_line.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Writes text to stderr without its lock, which a stuck thread may hold.
inline void write_to_standard_error(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0)
      return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Writes lines and flushes pending output. A stuck thread may hold a stream, or nothing may read from it, so
/// this returns after two seconds in any case.
inline void write_last_words(const std::string& lines) noexcept {
  try {
    const auto done = std::make_shared<std::atomic<bool>>(false);
    std::thread([done, lines] {
      write_to_standard_error(lines);
      std::fflush(nullptr);
      done->store(true);
    }).detach();
    for (int look = 0; look < 2000 && !done->load(); ++look)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } catch (...) { // no memory for the thread
    write_to_standard_error(lines);
  }
}

/// Ends the process by abort(), so that a debugger or a core dump shows where every thread stands. `words()`
/// returns the report, without the name of the library.
template <class Words> [[noreturn]] void abort_process(Words&& words) noexcept {
  std::string lines;
  try {
    lines = report_line(std::forward<Words>(words)(), on_terminal());
  } catch (...) {
    write_to_standard_error("shardwright: the process ends; there is no memory left to say why\n");
  }
  write_last_words(lines);
  // The abort() of the thread sanitizer flushes the streams, one of which a stuck thread may hold.
  static_cast<void>(std::raise(SIGABRT));
  std::abort(); // the program ignores the signal, or handles it
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
