// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/launch.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;

TEST_CASE("a second launch under mpirun is rejected, and does not affect the first", "[comm]") {
  const sw::LaunchOptions options{.deadline = std::chrono::seconds(60)};
  std::string told = "nothing was thrown";
  int sum = 0, ranks = 0;
  const int code = sw::launch(options, [&](sw::HostCommunicator world) {
    std::thread([&] {
      try {
        sw::launch(options, [](sw::HostCommunicator second) { second.barrier(); });
      } catch (const sw::LifecycleError& error) {
        told = error.what();
      }
    }).join();
    std::vector<int> data{1};
    world.all_reduce_in_place(data);
    sum = data[0];
    ranks = world.size();
  });
  CHECK(code == 0);
  CHECK_THAT(told, ContainsSubstring("a program must not launch another one under mpirun"));
  CHECK(sum == ranks);
}

TEST_CASE("thread ranks and the MPI rank of their process do not interfere", "[comm]") {
  const sw::LaunchOptions options{.deadline = std::chrono::seconds(60)};
  const int code = sw::launch(options, [&](sw::HostCommunicator world) {
    std::vector<sw::HostCommunicator> threads = sw::thread_world(2, {.deadline = std::chrono::seconds(60)});
    std::vector<int> of_threads{1}, of_processes{1};
    std::thread other([own = threads[1]]() mutable {
      std::vector<int> data{2};
      own.all_reduce_in_place(data);
    });
    world.all_reduce_in_place(of_processes);
    threads[0].all_reduce_in_place(of_threads);
    other.join();
    world.barrier();
    return of_threads[0] == 3 && of_processes[0] == world.size() ? 0 : 1;
  });
  CHECK(code == 0);
}
