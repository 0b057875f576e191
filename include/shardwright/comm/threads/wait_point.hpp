// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Waiting for another thread with a deadline: spin, then yield, then sleep in the kernel.

#include <shardwright/comm/cores.hpp>
#include <shardwright/core/config.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <thread>
#include <utility>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

using WaitClock = std::chrono::steady_clock;

/// Hints to the core that this is a spin loop.
inline void pause_core() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// How long a waiter keeps its core before it sleeps.
struct Patience {
  std::chrono::nanoseconds spin{};
  int yields = 0;
  bool placed = false; ///< The waiter's core is known to CoreBalance.
  bool wary = false;   ///< Yields have proved slow, so the waiter sleeps instead.
  int naps = 0;        ///< Short sleeps before the long one.

  /// Short sleeps of a thread that leaves its core idle.
  ///
  /// The peer that this thread waits for may have just lost its own core to a busy process. When a core
  /// becomes idle, the scheduler looks once for a waiting thread to move there, but leaves out threads that
  /// ran within the last half millisecond. A sleeper that wakes from time to time makes it look again.
  static constexpr int some_naps = 20;
  static constexpr std::chrono::microseconds nap{600};

  /// A thread that has a core to itself spins; one that shares its core lets the others run immediately, and
  /// sleeps only after about 100 µs: waking a sleeping core takes longer than most collectives.
  [[nodiscard]] static constexpr Patience of(int threads, int cores) noexcept {
    if (threads <= cores)
      return {std::chrono::microseconds(50), 0, false, false, some_naps};
    return {std::chrono::nanoseconds(0), 300};
  }

  enum class Step : std::uint8_t { look, yield, sleep };

  /// A waiter's next action, given how long it has waited and how often it has yielded. `in_the_way` means
  /// that the thread it waits for needs this core.
  [[nodiscard]] constexpr Step next(std::chrono::nanoseconds waited, int yielded,
                                    bool in_the_way) const noexcept {
    if (waited < spin)
      return in_the_way ? Step::sleep : Step::look;
    return yielded < yields ? Step::yield : Step::sleep;
  }
};

/// What a waiter knows of the threads that it waits for.
template <class T>
concept AwaitedThreads = requires(T& awaited) {
  { awaited.in_the_way() } -> std::same_as<bool>; // they need the waiter's core
  awaited.fetch();                                // before the waiter sleeps: they may have its core
};
struct UnknownThreads {
  [[nodiscard]] static bool in_the_way() noexcept { return false; }
  static void fetch() noexcept {}
};

/// Sleepers of one condition. A notifier first changes the state by a seq_cst operation, then calls notify().
class WaitPoint {
public:
  /// Wakes every waiter to check its condition again; cheap if none sleeps.
  void notify() noexcept {
    if (sleepers_.load(std::memory_order_seq_cst) == 0)
      return;
#if defined(__linux__)
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&epoch_), FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX,
            nullptr, nullptr, 0);
#else
    {
      const std::lock_guard lock(mutex_);
      epoch_.fetch_add(1, std::memory_order_seq_cst);
    }
    condition_.notify_all();
#endif
  }

  /// Waits until `done()` holds; false if the time limit passed first. `done` loads its state by seq_cst. If
  /// `awaited` are in the way, the waiter sleeps immediately.
  template <class Done, AwaitedThreads Awaited>
  [[nodiscard]] bool wait(Done done, const Patience& patience, std::chrono::nanoseconds limit,
                          Awaited awaited) {
    // Reading the clock costs as much as a short wait, so the first checks do not read it.
    constexpr int first_looks = 16;
    constexpr int quick_looks = 256;
    const bool spins = patience.spin.count() > 0;
    // If ranks share cores, the others cannot run while this one spins.
    if (look(done, spins ? first_looks : 4))
      return true;
    const bool blocks = spins && awaited.in_the_way();
    if (spins && !blocks && look(done, quick_looks - first_looks))
      return true;
    const auto start = WaitClock::now();
    return poll(done, patience, start, blocks) || sleep_until(done, start + limit, patience.naps, awaited);
  }
  template <class Done>
  [[nodiscard]] bool wait(Done done, const Patience& patience, std::chrono::nanoseconds limit) {
    return wait(std::move(done), patience, limit, UnknownThreads());
  }

  /// The same, but calls `say` once if it has taken longer than `notice`, unless that is zero.
  template <class Done, AwaitedThreads Awaited, class Say>
  [[nodiscard]] bool wait(Done done, const Patience& patience, std::chrono::nanoseconds limit,
                          Awaited awaited, std::chrono::nanoseconds notice, Say say) {
    if (notice <= std::chrono::nanoseconds::zero() || notice >= limit)
      return wait(done, patience, limit, awaited);
    if (wait(done, patience, notice, awaited))
      return true;
    say();
    return wait(done, patience, limit - notice, awaited);
  }

private:
  template <class Done> static bool look(Done& done, int times) {
    for (int i = 0; i < times; ++i)
      if (done())
        return true;
    return false;
  }

  template <class Done>
  static bool poll(Done& done, const Patience& patience, WaitClock::time_point start, bool in_the_way) {
    constexpr int pauses_per_look_at_the_clock = 16;
    WaitClock::time_point now = start;
    for (int yielded = 0;;) {
      switch (patience.next(now - start, yielded, in_the_way)) {
      case Patience::Step::look:
        for (int i = 0; i < pauses_per_look_at_the_clock; ++i) {
          pause_core();
          if (done())
            return true;
        }
        now = WaitClock::now();
        break;
      case Patience::Step::yield:
        if (!yield(patience.wary))
          return false;
        ++yielded;
        if (done())
          return true;
        break;
      case Patience::Step::sleep:
        return false;
      }
    }
  }

  /// Yields, unless a wary waiter had better sleep.
  static bool yield(bool wary) noexcept {
    if (!wary) {
      std::this_thread::yield();
      return true;
    }
    Yields& yields = Yields::own();
    const auto begin = WaitClock::now();
    if (!yields.help(begin))
      return false;
    std::this_thread::yield();
    yields.note(begin, WaitClock::now());
    return true;
  }

  template <class Done, class Awaited>
  bool sleep_until(Done& done, WaitClock::time_point deadline, int naps, Awaited& awaited) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bool reached = false;
    for (;;) {
      const std::uint32_t epoch = epoch_.load(std::memory_order_seq_cst);
      reached = done();
      const auto now = WaitClock::now();
      if (reached || now >= deadline)
        break;
      awaited.fetch();
      sleep(epoch, naps-- > 0 ? std::min(deadline, now + Patience::nap) : deadline);
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    return reached;
  }

  void sleep(std::uint32_t epoch, WaitClock::time_point deadline) {
#if defined(__linux__)
    static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
    const auto until =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
    timespec time{};
    time.tv_sec = static_cast<std::time_t>(until / 1'000'000'000);
    time.tv_nsec = static_cast<long>(until % 1'000'000'000);
    // An absolute time on CLOCK_MONOTONIC, which is libstdc++'s and libc++'s steady_clock on Linux.
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&epoch_), FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG,
            epoch, &time, nullptr, FUTEX_BITSET_MATCH_ANY);
#else
    std::unique_lock lock(mutex_);
    condition_.wait_until(lock, deadline, [&] { return epoch_.load(std::memory_order_seq_cst) != epoch; });
#endif
  }

  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint32_t> sleepers_{0};
#if !defined(__linux__)
  std::mutex mutex_;
  std::condition_variable condition_;
#endif
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
