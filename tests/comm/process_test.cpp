// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/cores.hpp>
#include <shardwright/comm/mpi/process.hpp>
#include <shardwright/comm/mpi/process_memory.hpp>

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

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

TEST_CASE("memory of a process is read from strides to strides", "[comm]") {
  std::vector<std::uint8_t> from(6000), to(6000, 255);
  std::iota(from.begin(), from.end(), std::uint8_t{0});
  // More rows than one system call takes, which end at other places on the two sides.
  const sw::StridedBlock theirs{5, 300, 7, 19}, own{2, 700, 3, 8};
  const auto read = [&](int process, std::uint64_t address) {
    return sw::detail::read_memory(process, address, theirs, 0, reinterpret_cast<std::byte*>(to.data()), own);
  };
  const auto address = reinterpret_cast<std::uintptr_t>(from.data());
  REQUIRE(read(::getpid(), address) == 0);
  std::vector<std::uint8_t> expected(6000, 255);
  for (std::size_t i = 0; i < own.count(); ++i)
    expected[2 + i / 3 * 8 + i % 3] = from[5 + i / 7 * 19 + i % 7];
  CHECK(to == expected);
  // A piece from its middle.
  std::array<std::uint8_t, 500> piece{};
  REQUIRE(sw::detail::read_memory(::getpid(), address, theirs, 900,
                                  reinterpret_cast<std::byte*>(piece.data()),
                                  sw::contiguous_block(0, piece.size())) == 0);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < piece.size(); ++i)
    wrong += piece[i] == from[5 + (900 + i) / 7 * 19 + (900 + i) % 7] ? 0 : 1;
  CHECK(wrong == 0);
  CHECK(read(::getpid(), 0) == EFAULT);
  const pid_t child = ::fork();
  if (child == 0)
    ::_exit(0);
  ::waitpid(child, nullptr, 0);
  CHECK(read(child, address) == ESRCH);
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
