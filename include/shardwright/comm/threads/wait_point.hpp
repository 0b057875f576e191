// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Waiting for another thread with a deadline: spin, then yield, then sleep in the kernel.

#include <shardwright/comm/waiting.hpp>
#include <shardwright/core/config.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

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

/// How long a waiter keeps its core before it sleeps: waking a sleeping core takes longer than most
/// collectives.
struct Patience {
  std::chrono::nanoseconds time{};
  bool yields = false; ///< To other threads meanwhile.

  /// A thread that has a core to itself spins; one that shares its core lets the others run immediately,
  /// unless that takes long (YieldHistory).
  [[nodiscard]] static constexpr Patience of(int threads, int cores) noexcept {
    if (threads <= cores)
      return {std::chrono::microseconds(50), false};
    return {std::chrono::microseconds(300), true};
  }
};

/// What a thread has learnt from its last waits about other programs on the cores.
class WaitHistory {
public:
  [[nodiscard]] static WaitHistory& of_thread() noexcept {
    static thread_local WaitHistory history;
    return history;
  }

  /// After many quick waits, a longer one means that a busy process has the core of the awaited thread for a
  /// time slice. If this thread slept meanwhile, the scheduler would move that thread to the core of this
  /// one, which became idle, and both would stay there.
  [[nodiscard]] Patience adapted(const Patience& patience) const noexcept {
    constexpr std::chrono::milliseconds time_slices{10};
    return patience.yields || quick_ < many ? patience : Patience{time_slices, false};
  }
  /// Takes note of a wait that has ended, or that goes on asleep.
  void note(bool quick) noexcept { quick_ = quick ? std::min(quick_ + 1, many) : 0; }

private:
  static constexpr int many = 100; ///< More than a training step makes in a row.
  int quick_ = 0;
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

  /// Waits until `done()` holds; false if the time limit passed first. `done` loads its state by seq_cst.
  /// A waiter with a core to itself yields if `peer_needs_core()`: a busy process has taken the core of the
  /// awaited thread, which now has to run on this one.
  template <class Done, class PeerNeedsCore>
  [[nodiscard]] bool wait(Done done, const Patience& patience, std::chrono::nanoseconds limit,
                          PeerNeedsCore peer_needs_core) {
    // Reading the clock costs as much as a short wait, so the first checks do not read it.
    constexpr int few_looks = 4;
    constexpr int first_looks = 16;
    constexpr int quick_looks = 240;
    WaitHistory& history = WaitHistory::of_thread();
    bool in_the_way = false;
    const auto quickly = [&] {
      if (look(done, patience.yields ? few_looks : first_looks))
        return true;
      in_the_way = !patience.yields && peer_needs_core();
      return !patience.yields && !in_the_way && look(done, quick_looks);
    };
    if (quickly()) {
      history.note(true);
      return true;
    }
    const auto start = WaitClock::now();
    bool reached = false;
    if (patience.yields || in_the_way)
      reached = yield(done, in_the_way ? YieldHistory::long_yield : patience.time, start);
    else
      reached = poll(done, history.adapted(patience), start);
    if (!patience.yields)
      history.note(reached && WaitClock::now() - start < patience.time);
    return reached || sleep_until(done, start + limit);
  }
  template <class Done>
  [[nodiscard]] bool wait(Done done, const Patience& patience, std::chrono::nanoseconds limit) {
    return wait(done, patience, limit, [] { return false; });
  }

  /// The same, but calls `notify` once if it has taken longer than `notice`, unless that is zero.
  template <class Done, class PeerNeedsCore, class Notice>
  [[nodiscard]] bool wait(Done done, const Patience& patience, std::chrono::nanoseconds limit,
                          PeerNeedsCore peer_needs_core, std::chrono::nanoseconds notice, Notice notify) {
    if (notice <= std::chrono::nanoseconds::zero() || notice >= limit)
      return wait(done, patience, limit, peer_needs_core);
    if (wait(done, patience, notice, peer_needs_core))
      return true;
    notify();
    return wait(done, patience, limit - notice, peer_needs_core);
  }

private:
  template <class Done> static bool look(Done& done, int times) {
    for (int i = 0; i < times; ++i)
      if (done())
        return true;
    return false;
  }

  template <class Done> static bool poll(Done& done, const Patience& patience, WaitClock::time_point start) {
    constexpr int pauses_per_look_at_the_clock = 16;
    for (int polls = 1;; ++polls) {
      if (patience.yields)
        std::this_thread::yield();
      else
        pause_core();
      if (done())
        return true;
      if ((patience.yields || polls % pauses_per_look_at_the_clock == 0) &&
          WaitClock::now() - start >= patience.time)
        return false;
    }
  }

  /// Yields until `done()`, for a time, unless yields have lately taken long.
  template <class Done>
  static bool yield(Done& done, std::chrono::nanoseconds time, WaitClock::time_point start) {
    YieldHistory& history = YieldHistory::of_process();
    if (!history.pays(start))
      return false;
    const bool reached = poll(done, {time, true}, start);
    history.note(start, WaitClock::now());
    return reached;
  }

  template <class Done> bool sleep_until(Done& done, WaitClock::time_point deadline) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bool reached = false;
    for (;;) {
      const std::uint32_t epoch = epoch_.load(std::memory_order_seq_cst);
      reached = done();
      if (reached || WaitClock::now() >= deadline)
        break;
      sleep(epoch, deadline);
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
