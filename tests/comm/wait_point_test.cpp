// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/threads/wait_point.hpp>

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

/// Looks at a condition before a waiter yields or reads the clock, and those of a spinning one after that.
constexpr int first_looks = 16, quick_looks = 240;

/// How often a waiter with a given patience checks a condition that never holds: without time to sleep, once
/// more than before it would.
[[nodiscard]] int looks(const detail::Patience& patience, bool peer_needs_core = false,
                        std::chrono::milliseconds limit = std::chrono::milliseconds(0)) {
  detail::WaitPoint point;
  int count = 0;
  CHECK_FALSE(point.wait([&count] { return ++count, false; }, patience, limit,
                         [peer_needs_core] { return peer_needs_core; }));
  return count;
}

} // namespace

TEST_CASE("a waiter yields to threads on its core, and sleeps at once while that takes long", "[comm]") {
  constexpr int few_looks = 4;
  detail::YieldHistory& history = detail::YieldHistory::of_process();
  const auto let_pay = [&history](bool pays) {
    const auto end = detail::WaitClock::now() + std::chrono::hours(pays ? -1 : 1);
    history.note(end - std::chrono::seconds(1), end);
    REQUIRE(history.pays(detail::WaitClock::now()) == pays);
  };
  const detail::Patience spins{std::chrono::microseconds(50), false},
      shares{std::chrono::microseconds(1), true};
  for (const bool pays : {true, false, true}) {
    let_pay(pays);
    const int peer_on_its_core = looks(spins, true);
    let_pay(pays);
    const int crowded = looks(shares);
    CHECK((pays ? peer_on_its_core > first_looks + 1 : peer_on_its_core == first_looks + 1));
    CHECK((pays ? crowded > few_looks + 1 : crowded == few_looks + 1));
  }
}

TEST_CASE("a waiter spins for longer than usual after many quick waits", "[comm]") {
  // One look at the clock ends its usual patience, so the number of its checks does not depend on time.
  const detail::Patience spins{std::chrono::nanoseconds(0), false};
  constexpr int checks_per_look_at_the_clock = 16;
  constexpr int usual = first_looks + quick_looks + checks_per_look_at_the_clock + 1;
  const auto after = [&](int quick_waits) {
    int count = 0;
    std::thread fresh([&] {
      detail::WaitPoint point;
      for (int i = 0; i < quick_waits; ++i)
        static_cast<void>(point.wait([] { return true; }, spins, std::chrono::milliseconds(0)));
      count = looks(spins);
    });
    fresh.join();
    return count;
  };
  CHECK(after(0) == usual);
  CHECK(after(99) == usual);
  // The machine may stop a thread for as long as it would spin, but not always between the same few checks.
  int longer = usual;
  for (int tries = 0; tries < 200 && longer == usual; ++tries)
    longer = after(100);
  CHECK(longer > usual);
}

TEST_CASE("a waiter that yields sleeps when its time is over", "[comm]") {
  CHECK(looks({std::chrono::nanoseconds(0), true}, false, std::chrono::milliseconds(10)) <= 16);
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
