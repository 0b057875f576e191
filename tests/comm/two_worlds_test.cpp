// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_suite.hpp"
#include "support/catch.hpp"
#include "support/launch_ranks.hpp"

#include <shardwright/comm/threads/transport.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sw = shardwright;
using shardwright_test::launch_thread_ranks;

namespace {

constexpr std::chrono::minutes ample{1};

/// Random calls of all kinds on the world and on groups of equal names, with their results checked.
void work(sw::HostCommunicator world) {
  for (const communicator_suite::Part& part : communicator_suite::parts())
    if (const std::string name = part.name; name != "all_reduce" && name != "large all_reduce")
      part.run(world);
}

/// The exception of a launch, or an empty text.
std::string thrown_by(int ranks, const shardwright_test::RankProgram& program) {
  try {
    launch_thread_ranks({.ranks = ranks, .deadline = ample}, program);
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

} // namespace

TEST_CASE("two launches at the same time are two worlds", "[comm]") {
  std::string first, second;
  std::thread other([&] { second = thrown_by(2, work); });
  first = thrown_by(3, work);
  other.join();
  CHECK(first == "");
  CHECK(second == "");
}

TEST_CASE("a world that fails does not affect the other one or the next", "[comm]") {
  for (int round = 0; round < 5; ++round) {
    std::string healthy;
    std::thread other([&] { healthy = thrown_by(3, work); });
    const std::string failed = thrown_by(2, [&](sw::HostCommunicator world) {
      std::vector<int> data(10, 1);
      for (int call = 0; call < 4 * round; ++call)
        world.all_reduce_in_place(data);
      if (world.rank() == 1)
        throw std::runtime_error("the disk is full");
      world.barrier();
    });
    other.join();
    CHECK(failed == "the disk is full");
    CHECK(healthy == "");
  }
  CHECK(thrown_by(4, work) == "");
}

TEST_CASE("a thread may be a rank of two worlds", "[comm]") {
  // Both worlds have all their ranks in the two threads of this test.
  std::vector<sw::HostCommunicator> one = sw::thread_world(2, {.deadline = ample});
  std::vector<sw::HostCommunicator> two = sw::thread_world(2, {.deadline = ample});
  std::vector<int> sums(2);
  const auto rank = [&](std::size_t r) {
    sw::HostCommunicator first = one[r], second = two[1 - r];
    std::vector<int> a{first.rank() + 1}, b{second.rank() + 10}, c{100};
    sw::Pending started = first.async().all_reduce_in_place(a);
    second.all_reduce_in_place(b);
    sw::Pending other = second.async().all_reduce_in_place(c);
    started.wait();
    other.wait();
    sums[r] = a[0] + b[0] + c[0];
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
  CHECK(sums == std::vector<int>(2, 3 + 21 + 200));
}
