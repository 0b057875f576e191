// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/threads/core_balance.hpp>
#include <shardwright/comm/threads/wait_point.hpp>

#if defined(__linux__)

#include <sched.h>

namespace detail = shardwright::detail;

TEST_CASE("a rank leaves a core that has more than its share, and may go anywhere later", "[comm]") {
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

TEST_CASE("a rank that may use one core alone stays there", "[comm]") {
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
