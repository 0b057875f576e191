// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/waiting.hpp>

#include <chrono>

using shardwright::detail::YieldHistory;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

namespace {

/// A machine on which time passes only where a test lets it.
struct Driven {
  using time_point = shardwright::detail::Machine::clock::time_point;

  static time_point now() noexcept { return time; }
  static void yield() noexcept {
    ++yields;
    time += length_of_yield;
  }
  static void nap(nanoseconds length) noexcept {
    ++naps;
    time += length;
  }
  [[nodiscard]] static YieldHistory& history() noexcept { return yield_history; }
  /// At a time that no other test's yields have reached.
  static void begin() noexcept {
    time += std::chrono::hours(1);
    yields = naps = 0;
    length_of_yield = nanoseconds(100);
  }

  inline static time_point time{};
  inline static nanoseconds length_of_yield{};
  inline static int yields = 0, naps = 0;
  inline static YieldHistory yield_history;
};

using Waiting = shardwright::detail::WaitingOn<Driven>;

/// Pauses some times, each after a poll of this length.
void pause(Waiting& waiting, int polls, nanoseconds poll = nanoseconds(50), bool peer_needs_core = false) {
  for (int i = 0; i < polls; ++i) {
    Driven::time += poll;
    waiting.pause([peer_needs_core] { return peer_needs_core; });
  }
}

} // namespace

TEST_CASE("a waiter spins, then yields, then naps, and expires at its deadline", "[comm]") {
  for (const int spins : {Waiting::few_mpi_polls, Waiting::few_polls, Waiting::many_polls}) {
    Driven::begin();
    Waiting waiting(milliseconds(250), spins);
    pause(waiting, spins - 1);
    CHECK_FALSE(waiting.slow());
    CHECK(Driven::yields + Driven::naps == 0);
    const auto until = [&](milliseconds idle) {
      for (const auto end = Driven::time + idle; Driven::time < end;)
        pause(waiting, 1);
    };
    until(milliseconds(4));
    CHECK(waiting.slow());
    CHECK(Driven::yields > 1000);
    CHECK(Driven::naps == 0);
    until(milliseconds(12));
    CHECK(Driven::naps > 0);
    CHECK_FALSE(waiting.expired());
    waiting.reset();
    CHECK_FALSE(waiting.slow());
    until(milliseconds(250));
    CHECK(waiting.expired());
  }
}

TEST_CASE("a spin with slow polls ends after few of them", "[comm]") {
  Driven::begin();
  Waiting waiting(milliseconds(20), Waiting::many_polls);
  CHECK_FALSE(waiting.slow());
  // As if each poll gave the core to another process for a time slice.
  pause(waiting, 50, milliseconds(1));
  CHECK(waiting.slow());
  CHECK(waiting.expired());
  waiting.reset();
  CHECK_FALSE(waiting.slow());
}

TEST_CASE("a waiter with a core to itself gives way to an awaited rank on that core", "[comm]") {
  const auto slow_after = [](int polls, int spins, bool peer_needs_core) {
    Driven::begin();
    Waiting waiting(std::chrono::minutes(1), spins);
    pause(waiting, polls, nanoseconds(50), peer_needs_core);
    return waiting.slow();
  };
  CHECK(slow_after(20, Waiting::many_polls, true));
  CHECK_FALSE(slow_after(20, Waiting::many_polls, false));
  CHECK_FALSE(slow_after(20, Waiting::few_polls, true)); // it yields after few polls anyway

  // It spins again when the other has left.
  Driven::begin();
  Waiting waiting(std::chrono::minutes(1), Waiting::many_polls);
  pause(waiting, 20, nanoseconds(50), true);
  CHECK(waiting.slow());
  CHECK(Driven::yields == 5);
  pause(waiting, 1);
  CHECK_FALSE(waiting.slow());
  CHECK(Driven::naps == 0);

  // It naps if a yield takes long: a busy process is on this core too.
  Driven::length_of_yield = milliseconds(4);
  pause(waiting, 20, nanoseconds(50), true);
  CHECK(Driven::yields == 6);
  CHECK(Driven::naps > 0);
}

TEST_CASE("of ranks that share cores, one whose yield took long naps instead", "[comm]") {
  const auto yields = [](int spins) {
    Driven::begin();
    Driven::length_of_yield = milliseconds(4);
    Waiting waiting(std::chrono::minutes(1), spins);
    pause(waiting, spins + 1);
    CHECK(Driven::naps == (spins == Waiting::many_polls ? 0 : 1));
    return Driven::yields;
  };
  CHECK(yields(Waiting::few_polls) == 1);
  CHECK(yields(Waiting::few_mpi_polls) == 1);
  // A core that became idle would be given an awaited rank that waits for its own.
  CHECK(yields(Waiting::many_polls) == 2);
}

TEST_CASE("yields that take long do not pay for a while, which grows and shrinks", "[comm]") {
  YieldHistory history;
  YieldHistory::clock::time_point now{std::chrono::seconds(1)};
  CHECK(history.pays(now));
  history.note(now, now + YieldHistory::long_yield / 2);
  CHECK(history.pays(now + YieldHistory::long_yield / 2));
  const auto pays_again_after_a_long_one = [&](milliseconds pause) {
    const auto end = now + milliseconds(4);
    history.note(now, end);
    now = end + pause;
    return !history.pays(end) && !history.pays(now - nanoseconds(1)) && history.pays(now);
  };
  for (const int pause : {1, 2, 4, 8, 16, 32, 64, 100, 100})
    CHECK(pays_again_after_a_long_one(milliseconds(pause)));
  history.note(now, now + YieldHistory::long_yield / 2);
  CHECK(history.pays(now));
  CHECK(pays_again_after_a_long_one(milliseconds(50)));
  for (int i = 0; i < 20; ++i)
    history.note(now, now + nanoseconds(400));
  CHECK(pays_again_after_a_long_one(YieldHistory::shortest_pause));
}
