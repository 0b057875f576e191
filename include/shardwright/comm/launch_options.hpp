// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The options of launch().

#include <shardwright/core/config.hpp>

#include <chrono>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The number of ranks, the time they may wait for one another, and whether calls are compared between
/// ranks.
struct LaunchOptions {
  /// Ranks of the world; 0 stands for the usable cores of this machine, or for the number that mpirun
  /// started.
  int ranks = 0;
  /// The longest time that one call may wait for its peers before it throws DeadlineExceeded.
  std::chrono::nanoseconds deadline = std::chrono::minutes(5);
  /// After this time in one wait, one line on the standard error stream says who is waited for and in which
  /// call; zero for never.
  std::chrono::nanoseconds notice = std::chrono::seconds(10);
  /// The longest time that programs of thread ranks may go on after one has failed, before the process ends
  /// with a report that names them; zero stands for the deadline, but for ten seconds at least.
  std::chrono::nanoseconds grace = std::chrono::nanoseconds::zero();
  /// The longest time that MPI may take to start all ranks, before the process ends with a sentence.
  std::chrono::nanoseconds start_deadline = std::chrono::minutes(2);
  /// Whether every collective compares its fingerprint (operation, counts, types, root, order) between the
  /// ranks.
  bool check = true;
  /// Threads that OpenBLAS, MKL or BLIS uses in each rank while several ranks are threads of one process; 0
  /// leaves it alone, as does OPENBLAS_NUM_THREADS, MKL_NUM_THREADS or BLIS_NUM_THREADS in the environment.
  int blas_threads = 1;
};

namespace detail {

/// Whether this unit launches processes under mpirun. It is part of the names that the linker sees, so that
/// units which differ never share what launch() is made of: not inline, since each unit has its own.
constexpr bool with_mpi =
#if defined(SHARDWRIGHT_WITH_MPI)
    true;
#else
    false;
#endif

/// A time limit as far as clocks can add it up: a century stands for all that is longer.
[[nodiscard]] constexpr std::chrono::nanoseconds bounded(std::chrono::nanoseconds limit) noexcept {
  constexpr std::chrono::nanoseconds century = std::chrono::hours(24 * 365 * 100);
  return limit < century ? limit : century;
}
/// Options with such limits.
[[nodiscard]] constexpr LaunchOptions bounded(LaunchOptions options) noexcept {
  options.deadline = bounded(options.deadline);
  options.notice = bounded(options.notice);
  options.grace = bounded(options.grace);
  options.start_deadline = bounded(options.start_deadline);
  return options;
}

} // namespace detail

} // namespace shardwright::inline SHARDWRIGHT_ABI
