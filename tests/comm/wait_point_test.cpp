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
      point.wait([] { return false; }, {std::chrono::microseconds(10), 3}, std::chrono::milliseconds(30));
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
        if (point.wait([&] { return go.load(); }, {std::chrono::nanoseconds(0), t}, std::chrono::minutes(1)))
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

TEST_CASE("if there are more threads than cores, they yield sooner", "[comm]") {
  CHECK(detail::Patience::of(2, 4).spin > detail::Patience::of(5, 4).spin);
  CHECK(detail::Patience::of(5, 4).yields > 0);
}

TEST_CASE("a waiter polls, yields and sleeps in turn, and sleeps at once if it is in the way", "[comm]") {
  using Step = detail::Patience::Step;
  struct Case {
    detail::Patience patience;
    std::chrono::microseconds waited;
    int yielded;
    bool in_the_way;
    Step next;
  };
  constexpr detail::Patience alone = detail::Patience::of(2, 2);
  constexpr detail::Patience crowded = detail::Patience::of(3, 2);
  constexpr std::chrono::microseconds none{0}, little{10}, long_wait{60};
  static constexpr Case cases[] = {
      {alone, none, 0, false, Step::look},
      {alone, little, 0, false, Step::look},
      {alone, long_wait, 0, false, Step::sleep},
      {alone, none, 0, true, Step::sleep},
      {alone, little, 0, true, Step::sleep},
      {crowded, none, 0, false, Step::yield},
      {crowded, long_wait, crowded.yields - 1, false, Step::yield},
      {crowded, long_wait, crowded.yields, false, Step::sleep},
  };
  for (const Case& one : cases) {
    INFO(&one - cases);
    CHECK(one.patience.next(one.waited, one.yielded, one.in_the_way) == one.next);
  }
}

namespace {
struct Peers {
  bool needs_core = false;
  int* fetches = nullptr;
  [[nodiscard]] bool in_the_way() const noexcept { return needs_core; }
  void fetch() const noexcept {
    if (fetches != nullptr)
      ++*fetches;
  }
};
} // namespace

TEST_CASE("a waiter in the way of others hardly polls before it sleeps", "[comm]") {
  const auto looks = [](bool in_the_way) {
    detail::WaitPoint point;
    int count = 0;
    const detail::Patience patience{std::chrono::milliseconds(5), 0};
    CHECK_FALSE(point.wait([&count] { return ++count, false; }, patience, std::chrono::milliseconds(10),
                           Peers{in_the_way}));
    return count;
  };
  CHECK(looks(true) <= 32);
  CHECK(looks(false) > 256);
}

TEST_CASE("a wary waiter sleeps if yields have proved slow", "[comm]") {
  const auto looks = [](bool wary) {
    int count = 0;
    std::thread([&count, wary] {
      const auto later = detail::WaitClock::now() + std::chrono::minutes(1);
      for (int i = 0; i < 2; ++i)
        detail::Yields::own().note(later - std::chrono::milliseconds(4), later);
      detail::WaitPoint point;
      CHECK_FALSE(point.wait([&count] { return ++count, false; },
                             {std::chrono::nanoseconds(0), 300, false, wary}, std::chrono::milliseconds(5)));
    }).join();
    return count;
  };
  CHECK(looks(true) <= 16);
  CHECK(looks(false) > 300);
}

TEST_CASE("a napping sleeper checks again although nobody wakes it", "[comm]") {
  detail::WaitPoint point;
  int looks = 0;
  const detail::Patience patience{std::chrono::nanoseconds(0), 0, false, false, 10};
  CHECK(point.wait([&looks] { return ++looks == 12; }, patience, std::chrono::minutes(1)));
}

TEST_CASE("a waiter fetches the threads that it waits for before each sleep, and only then", "[comm]") {
  detail::WaitPoint point;
  int fetches = 0;
  CHECK(point.wait([] { return true; }, {}, std::chrono::minutes(1), Peers{false, &fetches}));
  CHECK(fetches == 0);
  const detail::Patience naps{std::chrono::nanoseconds(0), 0, false, false, 10};
  CHECK(
      point.wait([&fetches] { return fetches == 3; }, naps, std::chrono::minutes(1), Peers{false, &fetches}));
  CHECK(fetches == 3);
}
