// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/cores.hpp>

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

#endif
