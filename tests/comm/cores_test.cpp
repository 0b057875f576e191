// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/cores.hpp>

#include <chrono>

namespace detail = shardwright::detail;

TEST_CASE("a process may use at least one core", "[comm]") { CHECK(detail::usable_cores() >= 1); }

TEST_CASE("slow yields in close succession stop yields for a while", "[comm]") {
  using namespace std::chrono_literals;
  using Time = detail::Yields::Clock::time_point;
  detail::Yields yields;
  const Time start{1s};
  CHECK(yields.help(start));
  yields.note(start, start + 20us);
  CHECK(yields.help(start + 20us));
  yields.note(start, start + 4ms);
  CHECK(yields.help(start + 4ms)); // a single one proves nothing
  yields.note(start + 40ms, start + 44ms);
  CHECK(yields.help(start + 44ms)); // long after the last
  yields.note(start + 45ms, start + 49ms);
  CHECK_FALSE(yields.help(start + 49ms));
  CHECK_FALSE(yields.help(start + 100ms));
  CHECK(yields.help(start + 150ms));
}

#if defined(__linux__)

#include <sched.h>

TEST_CASE("a thread moves to the core with the fewest ranks, and only to one below the limit", "[comm]") {
  cpu_set_t before;
  CPU_ZERO(&before);
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  CHECK(detail::usable_cores() == CPU_COUNT(&before));
  int last = -1;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    last = CPU_ISSET(core, &before) ? core : last;
  int noted = -1;
  const auto note = [&noted](int core) { noted = core; };
  CHECK_FALSE(detail::move_to_emptiest_core(
      1, [](int) { return 1; }, note));
  CHECK(noted == -1);
  CHECK(detail::move_to_emptiest_core(
      5, [last](int core) { return core == last ? 1 : 2; }, note));
  CHECK(noted == last);
  cpu_set_t after;
  CPU_ZERO(&after);
  REQUIRE(sched_getaffinity(0, sizeof(after), &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
}

#endif
