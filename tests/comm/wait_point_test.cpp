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

TEST_CASE("threads beyond the cores give way sooner", "[comm]") {
  CHECK(detail::Patience::of(2, 4).spin > detail::Patience::of(5, 4).spin);
  CHECK(detail::Patience::of(5, 4).yields > 0);
  CHECK(detail::usable_cores() >= 1);
}
