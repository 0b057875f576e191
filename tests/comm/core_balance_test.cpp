// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/threads/core_balance.hpp>
#include <shardwright/comm/threads/wait_point.hpp>

#if defined(__linux__)

#include <sched.h>

#include <chrono>

namespace detail = shardwright::detail;

TEST_CASE("a rank leaves a core that has more than its share, and may run anywhere later", "[comm]") {
  cpu_set_t before;
  CPU_ZERO(&before);
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  const int cores = CPU_COUNT(&before);
  if (cores < 2) {
    WARN("needs two cores");
    return;
  }
  // Two ranks for each core, all on one core.
  detail::CoreBalance balance(2 * cores, cores);
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(sched_getcpu(), &here);
  REQUIRE(sched_setaffinity(0, sizeof(here), &here) == 0);
  balance.settle(0);
  balance.settle(1);
  CHECK(balance.together(0, 1));
  REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
  balance.settle(2);
  CHECK_FALSE(balance.together(0, 2));

  cpu_set_t after;
  CPU_ZERO(&after);
  REQUIRE(sched_getaffinity(0, sizeof(after), &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("a rank that shares a core with the one it waits for moves away, but not again at once", "[comm]") {
  using namespace std::chrono_literals;
  cpu_set_t before;
  CPU_ZERO(&before);
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  if (CPU_COUNT(&before) < 2) {
    WARN("needs two cores");
    return;
  }
  detail::CoreBalance balance(2, 2);
  const int core = sched_getcpu();
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(core, &here);
  REQUIRE(sched_setaffinity(0, sizeof(here), &here) == 0);
  CHECK_FALSE(balance.beside(0, 1)); // no rank has seen rank 1
  balance.note(1);
  CHECK(balance.beside(0, 1));
  CHECK_FALSE(balance.beside(1, 1));

  detail::WaitClock::time_point now{1s};
  CHECK_FALSE(balance.depart(0, now)); // may run nowhere else
  REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
  CHECK_FALSE(balance.depart(0, now + 1us));
  // On a busy machine the scheduler may move the thread before it can move itself.
  bool left = false;
  for (int attempt = 0; attempt < 20 && !left; ++attempt) {
    REQUIRE(sched_setaffinity(0, sizeof(here), &here) == 0);
    REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
    left = balance.depart(0, now += detail::CoreBalance::between_departures);
  }
  CHECK(left);
  CHECK_FALSE(balance.together(0, 1));

  cpu_set_t after;
  CPU_ZERO(&after);
  REQUIRE(sched_getaffinity(0, sizeof(after), &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("a rank that may use only one core stays there", "[comm]") {
  cpu_set_t before;
  CPU_ZERO(&before);
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  const int core = sched_getcpu();
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(core, &here);
  REQUIRE(sched_setaffinity(0, sizeof(here), &here) == 0);
  detail::CoreBalance balance(4, 2);
  for (int rank = 0; rank < 4; ++rank)
    balance.settle(rank);
  CHECK(sched_getcpu() == core);
  CHECK(sched_setaffinity(0, sizeof(before), &before) == 0);
}

#endif
