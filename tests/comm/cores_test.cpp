// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/cores.hpp>
#include <shardwright/comm/threads/world.hpp>

namespace detail = shardwright::detail;

TEST_CASE("a process may use at least one core", "[comm]") { CHECK(detail::usable_cores() >= 1); }

#if defined(__linux__)

#include <sched.h>

TEST_CASE("the usable cores are those of the process's mask, and the thread runs on one of them", "[comm]") {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  REQUIRE(sched_getaffinity(0, sizeof(usable), &usable) == 0);
  CHECK(detail::usable_cores() == CPU_COUNT(&usable));
  CHECK(CPU_ISSET(detail::this_core(), &usable));
}

TEST_CASE("a rank was last seen on the core from which it entered a call, if it has entered one", "[comm]") {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  REQUIRE(sched_getaffinity(0, sizeof(usable), &usable) == 0);
  detail::ThreadWorld world(2, {});
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &usable)) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
      CHECK_FALSE(world.is_on_this_core(0)); // but on none, or on the one before
      world.note_core(0);
      CHECK(world.is_on_this_core(0));
      CHECK_FALSE(world.is_on_this_core(1));
    }
  CHECK(sched_setaffinity(0, sizeof(usable), &usable) == 0);
}

#endif
