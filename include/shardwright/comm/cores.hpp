// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Cores and threads: the cores of this process, moves between cores, whether a thread runs, and
/// whether yields are slow.

#include <shardwright/core/config.hpp>

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>

#include <ctime>
#endif

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The cores that this process may use, one bit each; none if the system does not report them.
struct UsableCores {
  static constexpr std::size_t words = 16;
  using Bits = std::array<std::uint64_t, words>;
  Bits bits{};

  UsableCores() noexcept {
#if defined(__linux__)
    static_assert(words * 64 == CPU_SETSIZE);
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
      return;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set))
        bits[core / 64] |= std::uint64_t{1} << (core % 64);
#endif
  }
  [[nodiscard]] static int count(const Bits& bits) noexcept {
    int out = 0;
    for (const std::uint64_t word : bits)
      out += std::popcount(word);
    return out;
  }
};

/// Cores that this process may use.
[[nodiscard]] inline int usable_cores() noexcept {
  if (const int known = UsableCores::count(UsableCores().bits); known > 0)
    return known;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN); // <thread> would ask the same, and take longer to compile
  return cores < 1 ? 1 : static_cast<int>(cores);
}

/// The core of the calling thread; -1 if the system does not report it.
[[nodiscard]] inline int this_core() noexcept {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

#if defined(__linux__)
/// Moves a thread of this process, 0 for the calling one, to a core; it may run on all of `usable`
/// afterwards.
/// @return whether the system agreed.
inline bool move_to_core(int thread, int core, const cpu_set_t& usable) noexcept {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  if (sched_setaffinity(thread, sizeof(one), &one) != 0)
    return false;
  sched_setaffinity(thread, sizeof(usable), &usable);
  return true;
}
#endif

/// Moves the calling thread to the core with the fewest ranks, if that has fewer than `limit`; it may run
/// anywhere afterwards. `ranks_on(core)` counts ranks; `noted(core)` is called before the move.
/// @return whether it has moved. Takes about 50 µs.
template <class RanksOn, class Noted>
bool move_to_emptiest_core(int limit, RanksOn ranks_on, Noted noted) noexcept {
#if defined(__linux__)
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0)
    return false;
  int emptiest = -1;
  int fewest = limit;
  // Among equals, prefers the next core, which is likely to be near the rank's memory.
  for (int i = 1, here = this_core(); i <= CPU_SETSIZE; ++i) {
    const int core = (here + i) % CPU_SETSIZE;
    if (!CPU_ISSET(core, &usable))
      continue;
    if (const int count = ranks_on(core); count < fewest) {
      fewest = count;
      emptiest = core;
    }
  }
  if (emptiest < 0)
    return false;
  // During the move, the thread may have to wait for its turn behind another process.
  noted(emptiest);
  return move_to_core(0, emptiest, usable);
#else
  static_cast<void>(limit);
  static_cast<void>(ranks_on);
  static_cast<void>(noted);
  return false;
#endif
}

/// The system's number for the calling thread; 0 if other threads cannot be moved on this system.
[[nodiscard]] inline int this_thread() noexcept {
#if defined(__linux__)
  return static_cast<int>(syscall(SYS_gettid));
#else
  return 0;
#endif
}

#if defined(__linux__)
/// The CPU time of a thread of this process in ns, up to now if it runs; negative if there is no such thread.
[[nodiscard]] inline std::int64_t cpu_time_of(int thread) noexcept {
  // The kernel's encoding of a thread's clock; pthread_getcpuclockid() does the same for a pthread_t.
  const auto clock = static_cast<clockid_t>(~static_cast<unsigned>(thread) << 3 | 6U);
  timespec time{};
  if (clock_gettime(clock, &time) != 0)
    return -1;
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}
#endif

/// Whether a thread of this process occupies a core at this moment, as opposed to sleeping or waiting for a
/// core; true if unknown. Takes about 1 µs.
[[nodiscard]] inline bool occupies_core(int thread) noexcept {
#if defined(__linux__)
  const std::int64_t before = cpu_time_of(thread);
  return before < 0 || cpu_time_of(thread) != before;
#else
  static_cast<void>(thread);
  return true;
#endif
}

/// Moves another thread of this process, which waits for a core, to the core of the calling thread; it may
/// run where it could before. No effect on a thread that sleeps.
/// @return whether the system agreed. Takes about 3 µs.
inline bool bring_to_this_core(int thread) noexcept {
#if defined(__linux__)
  const int core = this_core();
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (core < 0 || core >= CPU_SETSIZE || sched_getaffinity(thread, sizeof(usable), &usable) != 0 ||
      !CPU_ISSET(core, &usable))
    return false;
  return move_to_core(thread, core, usable);
#else
  static_cast<void>(thread);
  return false;
#endif
}

/// The calling thread's experience with yields.
///
/// If a busy process shares the core, a yield returns after that process's time slice, milliseconds later,
/// and does so each time, since the kernel counts a yield as time used. A thread that sleeps keeps its claim,
/// and runs again as soon as it is woken.
class Yields {
public:
  using Clock = std::chrono::steady_clock;

  /// Far longer than a rank's part in a small collective, far shorter than a time slice.
  static constexpr std::chrono::microseconds slow{500};
  /// An occasional slow yield is no sign of a busy neighbour, but two within this time are.
  static constexpr std::chrono::milliseconds together{20};
  /// Then do not yield for this long: an occasional attempt costs little even if it is slow.
  static constexpr std::chrono::milliseconds bar{100};

  [[nodiscard]] bool help(Clock::time_point now) const noexcept { return now >= barred_until_; }
  void note(Clock::time_point begin, Clock::time_point end) noexcept {
    if (end - begin <= slow)
      return;
    if (last_slow_ != Clock::time_point() && end - last_slow_ < together)
      barred_until_ = end + bar;
    last_slow_ = end;
  }
  [[nodiscard]] static Yields& own() noexcept {
    static thread_local constinit Yields yields;
    return yields;
  }

private:
  Clock::time_point last_slow_{};
  Clock::time_point barred_until_{};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
