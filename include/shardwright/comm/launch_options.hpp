// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The options of launch().

#include <shardwright/core/config.hpp>

#include <chrono>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The number of ranks, time limits for waits, and whether ranks compare their calls.
struct LaunchOptions {
  /// Ranks of the world; 0 means one per usable core of this machine, or the number that mpirun started.
  int ranks = 0;
  /// The longest time that one call may wait for its peers before it throws DeadlineExceeded.
  std::chrono::nanoseconds deadline = std::chrono::minutes(5);
  /// After this time in one wait, a line on stderr says which ranks are awaited and in which call; zero for
  /// never. Ranks of one process or node that are then found to wait for one another in a ring do not wait
  /// for the deadline, so a second thread of a thread rank must not be what ends such a wait.
  std::chrono::nanoseconds notice = std::chrono::seconds(10);
  /// The longest time for which thread ranks may keep running after one has failed, before the process ends
  /// with a report that names them; zero means the deadline, but at least ten seconds.
  std::chrono::nanoseconds grace = std::chrono::nanoseconds::zero();
  /// The longest time that MPI may take to start all ranks, before the process ends with an error message.
  std::chrono::nanoseconds start_deadline = std::chrono::minutes(2);
  /// Whether every collective compares its fingerprint (operation, counts, types, root, order) between the
  /// ranks. Without it, lengths that differ are still an error where they are seen, but that may be too late:
  /// Open MPI 4.1.4 writes a message of more than 4 KiB beyond the end of a receive that is shorter.
  bool check = true;
  /// Threads that OpenBLAS, MKL or BLIS uses in each rank while several ranks are threads of one process; 0
  /// leaves the setting alone, as does OPENBLAS_NUM_THREADS, MKL_NUM_THREADS or BLIS_NUM_THREADS in the
  /// environment.
  int blas_threads = 1;
};

namespace detail {

/// Whether this translation unit launches processes under mpirun. It is part of the linker names, so that
/// units which differ never share the implementation of launch(): not inline, since each unit has its own.
constexpr bool with_mpi =
#if defined(SHARDWRIGHT_WITH_MPI)
    true;
#else
    false;
#endif

/// Clamps a time limit to a century, so that clocks can add it without overflow.
[[nodiscard]] constexpr std::chrono::nanoseconds bounded(std::chrono::nanoseconds limit) noexcept {
  constexpr std::chrono::nanoseconds century = std::chrono::hours(24 * 365 * 100);
  return limit < century ? limit : century;
}
/// Options with clamped limits.
[[nodiscard]] constexpr LaunchOptions bounded(LaunchOptions options) noexcept {
  options.deadline = bounded(options.deadline);
  options.notice = bounded(options.notice);
  options.grace = bounded(options.grace);
  options.start_deadline = bounded(options.start_deadline);
  return options;
}

} // namespace detail

} // namespace shardwright::inline SHARDWRIGHT_ABI
