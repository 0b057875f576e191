// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/threads/wait_point.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace detail = shardwright::detail;

TEST_CASE("a wait ends at its limit, and not before", "[comm]") {
  detail::WaitPoint point;
  const auto start = detail::WaitClock::now();
  const bool reached =
      point.wait([] { return false; }, {std::chrono::microseconds(10), true}, std::chrono::milliseconds(30));
  CHECK_FALSE(reached);
  CHECK(detail::WaitClock::now() - start >= std::chrono::milliseconds(30));
}

TEST_CASE("every sleeper wakes", "[comm]") {
  for (int round = 0; round < 50; ++round) {
    detail::WaitPoint point;
    std::atomic<bool> go{false};
    std::atomic<int> woken{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        if (point.wait([&] { return go.load(); }, {std::chrono::microseconds(t), t % 2 == 0},
                       std::chrono::minutes(1)))
          ++woken;
      });
    if (round % 2 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    go.store(true);
    point.notify();
    for (std::thread& thread : threads)
      thread.join();
    CHECK(woken.load() == 4);
  }
}

TEST_CASE("threads that share cores yield, others spin", "[comm]") {
  constexpr detail::Patience alone = detail::Patience::of(4, 4);
  constexpr detail::Patience crowded = detail::Patience::of(5, 4);
  STATIC_REQUIRE(!alone.yields && alone.time > std::chrono::nanoseconds(0));
  STATIC_REQUIRE(crowded.yields && crowded.time > std::chrono::nanoseconds(0));
}

namespace {

/// How often a waiter with a given patience checks a condition that never holds.
[[nodiscard]] int looks(const detail::Patience& patience, bool peer_needs_core = false,
                        std::chrono::milliseconds limit = std::chrono::milliseconds(10)) {
  detail::WaitPoint point;
  int count = 0;
  CHECK_FALSE(point.wait([&count] { return ++count, false; }, patience, limit,
                         [peer_needs_core] { return peer_needs_core; }));
  return count;
}

} // namespace

/// Whether one of many fresh threads, of which a busy machine may disturb some, finds `property()` to hold.
template <class Property> [[nodiscard]] bool some_thread_finds(Property property) {
  bool found = false;
  for (int i = 0; i < 200 && !found; ++i)
    std::thread([&] { found = property(); }).join();
  return found;
}

TEST_CASE("a waiter yields to an awaited thread on its core, and sleeps at once where that takes long",
          "[comm]") {
  const detail::Patience spins{std::chrono::microseconds(50), false};
  const auto short_limit = std::chrono::milliseconds(2);
  CHECK(some_thread_finds([&] {
    const int first = looks(spins, true, short_limit);
    return first > 32 && looks(spins, true, short_limit) <= 32; // it has yielded in vain
  }));
}

TEST_CASE("a waiter spins for longer than usual after many quick waits", "[comm]") {
  const detail::Patience spins{std::chrono::microseconds(50), false};
  const auto limit = std::chrono::milliseconds(20);
  CHECK(some_thread_finds([&] {
    detail::WaitPoint point;
    const int first = looks(spins, false, limit);
    for (int i = 0; i < 99; ++i)
      static_cast<void>(point.wait([] { return true; }, spins, limit));
    const int soon = looks(spins, false, limit); // a wait too few
    for (int i = 0; i < 100; ++i)
      static_cast<void>(point.wait([] { return true; }, spins, limit));
    return looks(spins, false, limit) > 4 * std::max(first, soon);
  }));
}

TEST_CASE("a waiter that yields sleeps when its time is over", "[comm]") {
  CHECK(looks({std::chrono::nanoseconds(0), true}) <= 16);
}

TEST_CASE("a wait that becomes long is noted once, and goes on", "[comm]") {
  detail::WaitPoint point;
  int notes = 0;
  const auto never = [] { return false; };
  CHECK_FALSE(point.wait(never, {}, std::chrono::milliseconds(20), never, std::chrono::milliseconds(5),
                         [&notes] { ++notes; }));
  CHECK(notes == 1);
  CHECK_FALSE(point.wait(never, {}, std::chrono::milliseconds(5), never, std::chrono::milliseconds(0),
                         [&notes] { ++notes; }));
  CHECK(notes == 1);
}
