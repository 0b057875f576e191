// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The wait of a rank for others: a short spin, then yields, then brief sleeps, up to a deadline.

#include <shardwright/core/config.hpp>

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A time for messages, such as "2.5 s".
inline std::string time_text(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

/// One wait: call pause() between polls, reset() after progress, and give up once it is expired().
class Waiting {
public:
  /// Polls before the processor is given away: a rank with a core to itself can afford a millisecond, and
  /// loses whole time slices to others by giving it away; ranks that share cores hold one another up.
  static constexpr int few_polls = 64;
  static constexpr int many_polls = 4096;

  explicit Waiting(std::chrono::nanoseconds deadline, int spins = few_polls)
      : start_(clock::now()), idle_since_(start_), deadline_(deadline), spins_(spins) {}

  /// Gives the processor away, the longer the more time has passed without progress.
  void pause() {
    if (++polls_ < spins_)
      return;
    const clock::time_point now = clock::now();
    if (progress_)
      idle_since_ = now;
    progress_ = false;
    expired_ = now - start_ > deadline_;
    const auto idle = now - idle_since_;
    if (idle < std::chrono::milliseconds(5)) {
      ::sched_yield();
      return;
    }
    const timespec nap{0, idle < std::chrono::milliseconds(200) ? 50'000 : 500'000};
    ::nanosleep(&nap, nullptr);
  }

  /// Whether the clock has been read since the last reset: time for the checks that cost more than a poll.
  [[nodiscard]] bool slow() const noexcept { return polls_ >= spins_; }
  [[nodiscard]] bool expired() const noexcept { return expired_; }
  /// True once, when the wait takes longer than a time; never where that is zero.
  [[nodiscard]] bool past_notice(std::chrono::nanoseconds notice) noexcept {
    if (noticed_ || notice <= std::chrono::nanoseconds::zero() || clock::now() - start_ <= notice)
      return false;
    return noticed_ = true;
  }
  void reset() noexcept {
    polls_ = 0;
    progress_ = true;
  }

private:
  using clock = std::chrono::steady_clock;

  clock::time_point start_;
  clock::time_point idle_since_;
  std::chrono::nanoseconds deadline_;
  int spins_;
  int polls_ = 0;
  bool progress_ = false;
  bool expired_ = false;
  bool noticed_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
