// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/cores.hpp>
#include <shardwright/comm/mpi/process.hpp>

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cstdint>

namespace sw = shardwright;
using sw::detail::ProcessState;

TEST_CASE("a process is alive, stopped or gone", "[comm]") {
  CHECK(sw::detail::state_of_process(::getpid()) == ProcessState::alive);
  const pid_t child = ::fork();
  if (child == 0)
    for (;;)
      ::pause();
  CHECK(sw::detail::state_of_process(child) == ProcessState::alive);
  int status = 0;
  ::kill(child, SIGSTOP);
  ::waitpid(child, &status, WUNTRACED);
  CHECK(sw::detail::state_of_process(child) == ProcessState::stopped);
  ::kill(child, SIGCONT);
  ::waitpid(child, &status, WCONTINUED);
  CHECK(sw::detail::state_of_process(child) == ProcessState::alive);
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  CHECK(sw::detail::state_of_process(child) == ProcessState::gone);
}

TEST_CASE("any command name leaves the state of its process readable", "[comm]") {
  STATIC_REQUIRE(sw::detail::state_letter("17 (train) T 1 17") == 'T');
  STATIC_REQUIRE(sw::detail::state_letter("17 (a) R (b) S 1 17") == 'S');
  STATIC_REQUIRE(sw::detail::state_letter("17 (train)") == '?');
  STATIC_REQUIRE(sw::detail::state_letter("") == '?');
}

TEST_CASE("a process knows its cores and its namespace", "[comm]") {
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  int cores = 0;
  for (const std::uint64_t bits : sw::detail::UsableCores().bits)
    cores += std::popcount(bits);
  CHECK(cores == CPU_COUNT(&set));
  CHECK(sw::detail::pid_namespace() == sw::detail::pid_namespace());
}
