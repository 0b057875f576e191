// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/waiting.hpp>

#include <chrono>
#include <thread>

using shardwright::detail::Waiting;
using shardwright::detail::YieldHistory;

TEST_CASE("a spin with slow polls ends after few of them", "[comm]") {
  Waiting waiting(std::chrono::milliseconds(20), Waiting::many_polls);
  CHECK_FALSE(waiting.slow());
  // As if each poll gave the core to another process for a time slice.
  for (int poll = 0; poll < 50; ++poll) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    waiting.pause();
  }
  CHECK(waiting.slow());
  CHECK(waiting.expired());
  waiting.reset();
  CHECK_FALSE(waiting.slow());
}

TEST_CASE("a waiter with a core to itself gives way to an awaited rank on that core", "[comm]") {
  const auto slow_after = [](int polls, int spins, bool peer_needs_core) {
    Waiting waiting(std::chrono::minutes(1), spins);
    for (int poll = 0; poll < polls; ++poll)
      waiting.pause([peer_needs_core] { return peer_needs_core; });
    return waiting.slow();
  };
  CHECK(slow_after(20, Waiting::many_polls, true));
  CHECK_FALSE(slow_after(20, Waiting::many_polls, false));
  CHECK_FALSE(slow_after(20, Waiting::few_polls, true)); // it yields after few polls anyway

  // It spins again when the other has left.
  Waiting waiting(std::chrono::minutes(1), Waiting::many_polls);
  for (int poll = 0; poll < 20; ++poll)
    waiting.pause([] { return true; });
  CHECK(waiting.slow());
  waiting.pause([] { return false; });
  CHECK_FALSE(waiting.slow());
}

TEST_CASE("yields that take long do not pay for a while", "[comm]") {
  using std::chrono::milliseconds;
  const YieldHistory::clock::time_point now{std::chrono::seconds(1)};
  YieldHistory history;
  CHECK(history.pays(now));
  history.note(now, now + YieldHistory::long_yield / 2);
  CHECK(history.pays(now + YieldHistory::long_yield / 2));
  history.note(now, now + milliseconds(4));
  CHECK_FALSE(history.pays(now + milliseconds(4)));
  CHECK_FALSE(history.pays(now + milliseconds(100)));
  CHECK(history.pays(now + milliseconds(104)));
}
