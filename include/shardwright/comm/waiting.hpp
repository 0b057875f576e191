// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Waiting for other ranks: a short spin, then yields, then brief sleeps, up to a deadline.

#include <shardwright/core/config.hpp>

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A time as text for messages, such as "2.5 s".
inline std::string time_text(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

/// Whether a thread of this process that waits should yield, or sleep.
///
/// A yield that takes long went to a busy process, or to a rank that computes: it got a whole time slice. A
/// sleeping thread gives way as well but is back soon, because the scheduler prefers a woken thread to a busy
/// one. So no thread yields for a while, which doubles each time, and is halved by each short yield: a rank
/// that computed does not make the small calls after it slow.
class YieldHistory {
public:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds long_yield{500};
  static constexpr std::chrono::milliseconds shortest_pause{1}, longest_pause{100};

  /// Of all threads: those of ranks may live for one launch of a few milliseconds only.
  [[nodiscard]] static YieldHistory& of_process() noexcept {
    static YieldHistory history;
    return history;
  }
  [[nodiscard]] bool pays(clock::time_point now) const noexcept {
    return now.time_since_epoch() >= clock::duration(not_before_.load(std::memory_order_relaxed));
  }
  /// Takes note of a yield, or of some in a row.
  void note(clock::time_point begin, clock::time_point end) noexcept {
    const clock::duration pause(pause_.load(std::memory_order_relaxed));
    if (end - begin >= long_yield) {
      not_before_.store((end + pause).time_since_epoch().count(), std::memory_order_relaxed);
      pause_.store(std::min<clock::duration>(2 * pause, longest_pause).count(), std::memory_order_relaxed);
    } else if (pause > shortest_pause) {
      pause_.store(std::max<clock::duration>(pause / 2, shortest_pause).count(), std::memory_order_relaxed);
    }
  }

private:
  std::atomic<clock::rep> not_before_{0};
  std::atomic<clock::rep> pause_{clock::duration(shortest_pause).count()};
};

/// What a wait asks of the machine: the time, to let other threads run, and how long that took before.
struct Machine {
  using clock = std::chrono::steady_clock;
  [[nodiscard]] static clock::time_point now() noexcept { return clock::now(); }
  static void yield() noexcept { ::sched_yield(); }
  static void nap(std::chrono::nanoseconds time) noexcept {
    const timespec length{0, static_cast<long>(time.count())};
    ::nanosleep(&length, nullptr);
  }
  [[nodiscard]] static YieldHistory& history() noexcept { return YieldHistory::of_process(); }
};

/// One wait: call pause() between polls, reset() after progress, and give up once it is expired().
/// @tparam On The machine, or one whose time a test sets.
template <class On> class WaitingOn {
public:
  /// Polls before the first yield: a rank with a core to itself can afford a millisecond, and would lose
  /// whole time slices to other processes by yielding; ranks that share cores would hold one another up.
  static constexpr int few_polls = 32;
  /// The same for polls of MPI, which take longer: a rank that shares its core holds up the awaited one.
  static constexpr int few_mpi_polls = 8;
  static constexpr int many_polls = 8192;

  explicit WaitingOn(std::chrono::nanoseconds deadline, int spins = few_polls)
      : deadline_(deadline), spins_(spins) {}

  /// Yields or sleeps, the longer the more time has passed without progress.
  void pause() {
    pause([] { return false; });
  }
  /// The same, but yields from the start while `peer_needs_core()`: an awaited rank has to run on this core.
  template <class PeerNeedsCore> void pause(PeerNeedsCore peer_needs_core) {
    constexpr int polls_per_look_at_the_core = 16;
    ++polls_;
    if (in_the_way_ || (spins_ > few_polls && polls_ % polls_per_look_at_the_core == 0))
      in_the_way_ = peer_needs_core();
    // Reading the clock costs as much as a poll, so a short wait does not read it.
    if (!slow() && polls_ % 8 != 0 && (start_ != clock::time_point() || --untimed_ > 0))
      return;
    const clock::time_point now = On::now();
    if (start_ == clock::time_point())
      start_ = idle_since_ = now;
    if (progress_)
      idle_since_ = now;
    progress_ = false;
    // A poll in which another process gets the core takes a whole time slice, so counting polls does not
    // measure time.
    spun_out_ = spun_out_ || now - idle_since_ > std::chrono::milliseconds(2);
    if (!slow())
      return;
    expired_ = now - start_ > deadline_;
    const auto idle = now - idle_since_;
    YieldHistory& history = On::history();
    const bool shares_core = spins_ <= few_polls || in_the_way_;
    if (idle < longest_yields() && (!shares_core || history.pays(now))) {
      On::yield();
      if (shares_core)
        history.note(now, On::now());
    } else {
      On::nap(std::chrono::microseconds(idle < std::chrono::milliseconds(200) ? 50 : 500));
    }
  }

  /// Whether the spin phase is over: time for the checks that cost more than a poll.
  [[nodiscard]] bool slow() const noexcept { return polls_ >= spins_ || spun_out_ || in_the_way_; }
  [[nodiscard]] bool expired() const noexcept { return expired_; }
  /// True once, when the wait exceeds a given time; never if that is zero.
  [[nodiscard]] bool past_notice(std::chrono::nanoseconds notice) noexcept {
    if (noticed_ || notice <= std::chrono::nanoseconds::zero() || On::now() - start_ <= notice)
      return false;
    return noticed_ = true;
  }
  void reset() noexcept {
    polls_ = 0;
    progress_ = true;
    spun_out_ = false;
  }

private:
  using clock = Machine::clock;

  /// Time without progress until a rank naps, and so frees its core. If it did so while a busy process has
  /// the core of the awaited rank for a time slice, the scheduler would move that rank here, and both would
  /// stay.
  [[nodiscard]] std::chrono::milliseconds longest_yields() const noexcept {
    return std::chrono::milliseconds(spins_ > few_polls ? 12 : 5);
  }

  clock::time_point start_{}; ///< Of the first pause.
  clock::time_point idle_since_{};
  std::chrono::nanoseconds deadline_;
  int spins_;
  int polls_ = 0;
  int untimed_ = 8; ///< Pauses until the clock is read, whatever has moved meanwhile.
  bool progress_ = false;
  bool spun_out_ = false;   ///< Without progress for longer than the spin phase.
  bool in_the_way_ = false; ///< Of an awaited rank, at the last look.
  bool expired_ = false;
  bool noticed_ = false;
};

using Waiting = WaitingOn<Machine>;

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
