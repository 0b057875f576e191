// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Waiting for other ranks: a short spin, then yields, then brief sleeps, up to a deadline.

#include <shardwright/core/config.hpp>

#include <sched.h>
#include <time.h>
#include <unistd.h>

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

/// One wait: call pause() between polls, reset() after progress, and give up once it is expired().
class Waiting {
public:
  /// Polls before the first yield: a rank with a core to itself can afford a millisecond, and would lose
  /// whole time slices to other processes by yielding; ranks that share cores would hold one another up.
  static constexpr int few_polls = 32;
  static constexpr int many_polls = 8192;

  explicit Waiting(std::chrono::nanoseconds deadline, int spins = few_polls)
      : deadline_(deadline), spins_(spins) {}

  /// Yields or sleeps, the longer the more time has passed without progress.
  void pause() {
    // Reading the clock costs as much as a poll, so a short wait does not read it.
    if (++polls_ < spins_ && !spun_out_ && polls_ % 8 != 0 &&
        (start_ != clock::time_point() || --untimed_ > 0))
      return;
    const clock::time_point now = clock::now();
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
    if (idle < std::chrono::milliseconds(5))
      ::sched_yield();
    else
      nap(idle < std::chrono::milliseconds(200) ? 50'000 : 500'000);
  }

  /// Whether the spin phase is over: time for the checks that cost more than a poll.
  [[nodiscard]] bool slow() const noexcept { return polls_ >= spins_ || spun_out_; }
  [[nodiscard]] bool expired() const noexcept { return expired_; }
  /// True once, when the wait exceeds a given time; never if that is zero.
  [[nodiscard]] bool past_notice(std::chrono::nanoseconds notice) noexcept {
    if (noticed_ || notice <= std::chrono::nanoseconds::zero() || clock::now() - start_ <= notice)
      return false;
    return noticed_ = true;
  }
  void reset() noexcept {
    polls_ = 0;
    progress_ = true;
    spun_out_ = false;
  }

private:
  using clock = std::chrono::steady_clock;

  static void nap(long nanoseconds) noexcept {
    const timespec time{0, nanoseconds};
    ::nanosleep(&time, nullptr);
  }

  clock::time_point start_{}; ///< Of the first pause.
  clock::time_point idle_since_{};
  std::chrono::nanoseconds deadline_;
  int spins_;
  int polls_ = 0;
  int untimed_ = 8; ///< Pauses until the clock is read, whatever has moved meanwhile.
  bool progress_ = false;
  bool spun_out_ = false; ///< Without progress for longer than the spin phase.
  bool expired_ = false;
  bool noticed_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
