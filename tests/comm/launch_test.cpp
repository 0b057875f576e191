// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/heap_count.hpp"
#include "support/matchers.hpp"
#include "support/standard_error.hpp"

#include <shardwright/comm/launch.hpp>
#include <shardwright/core/blas_threads.hpp>
#include <shardwright/launch.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;

TEST_CASE("launch runs the program once on every rank", "[comm]") {
  for (const int ranks : {1, 2, 3, 7}) {
    std::atomic<int> seen{0};
    const int code = sw::launch({.ranks = ranks}, [&](sw::HostCommunicator world) {
      if (world.size() == ranks)
        seen.fetch_add(1 << (4 * world.rank()));
    });
    CHECK(code == 0);
    CHECK(seen.load() == (1 << (4 * ranks)) / 15);
  }
}

TEST_CASE("launch uses the cores of the machine by default", "[comm]") {
  std::atomic<int> size{0};
  sw::launch({}, [&](sw::HostCommunicator world) { size.store(world.size()); });
  CHECK(size.load() == sw::detail::usable_cores());
}

TEST_CASE("launch returns the largest exit code", "[comm]") {
  CHECK(sw::launch({.ranks = 3}, [](sw::HostCommunicator world) { return world.rank() * 10; }) == 20);
}

TEST_CASE("launch passes on any exception", "[comm]") {
  CHECK_THROWS_AS(sw::launch({.ranks = 2},
                             [](sw::HostCommunicator world) {
                               if (world.rank() == 1)
                                 throw 7;
                               world.barrier();
                             }),
                  int);
}

TEST_CASE("a thread rank that throws is named, unless its error does so", "[comm]") {
  const auto told = [](auto fail) {
    const shardwright_test::StandardError errors;
    CHECK_THROWS(sw::launch({.ranks = 3}, [&](sw::HostCommunicator world) {
      if (world.rank() == 1)
        fail(world);
      world.barrier();
    }));
    return errors.text();
  };
  CHECK(told([](auto&) { throw std::runtime_error("the disk is on fire"); }) ==
        "shardwright: rank 1 failed: the disk is on fire\n");
  CHECK(told([](auto& world) { world.send(std::vector<float>(1), 1); }).empty());
}

TEST_CASE("launch throws the error that woke the others, whichever rank was the first to end", "[comm]") {
  // What a launch throws whose rank 0 ended first, after it had called abort, and what it prints.
  const auto concluded = [](const std::vector<std::exception_ptr>& of_ranks) {
    std::vector<sw::detail::RankResult> results;
    for (const std::exception_ptr& each : of_ranks)
      results.push_back({0, each});
    sw::detail::Failure first;
    first.kind = sw::detail::Failure::Kind::aborted;
    first.rank = 0;
    first.sentence = "the first to end";
    const shardwright_test::StandardError errors;
    try {
      sw::detail::conclude(results, std::make_shared<sw::detail::Failure>(first));
    } catch (const std::exception& thrown) {
      return thrown.what() + ("; " + errors.text());
    }
    return errors.text();
  };
  const auto peer = [](int rank, const char* sentence) {
    return std::make_exception_ptr(sw::PeerFailed(rank, sentence));
  };
  const std::exception_ptr fire = std::make_exception_ptr(std::runtime_error("the disk is on fire"));
  CHECK(concluded({peer(2, "2 failed"), nullptr, fire}) ==
        "the disk is on fire; shardwright: rank 2 failed: the disk is on fire\n");
  CHECK(concluded({peer(2, "2 failed"), fire, peer(1, "1 failed")}) ==
        "the disk is on fire; shardwright: rank 1 failed: the disk is on fire\n");
  CHECK(concluded({fire, peer(0, "0 failed")}) ==
        "the disk is on fire; shardwright: rank 0 called abort: the first to end\n");
  // A rank that returned has no error, so that of the rank which waited for it tells most.
  CHECK(concluded({peer(2, "2 failed"), nullptr, peer(1, "1 left")}) ==
        "1 left; shardwright: rank 2 failed: 1 left\n");
  // Ranks that blame each other, in worlds of an even and an odd number of ranks.
  const std::string own = "1 dropped a started call; shardwright: rank 0 called abort: the first to end\n";
  CHECK(concluded({peer(1, "1 dropped a started call"), peer(0, "0 failed")}) == own);
  CHECK(concluded({peer(1, "1 dropped a started call"), peer(0, "0 failed"), nullptr}) == own);
}

TEST_CASE("an abort without an exception is an error of launch", "[comm]") {
  CHECK_THROWS_WITH(sw::launch({.ranks = 2},
                               [](sw::HostCommunicator world) {
                                 if (world.rank() == 1)
                                   world.abort("stop here");
                               }),
                    ContainsSubstring("rank 1 called abort: stop here"));
}

TEST_CASE("launch rejects options out of range", "[comm]") {
  const auto program = [](sw::HostCommunicator) {};
  CHECK_THROWS_WITH(sw::launch({.ranks = -1}, program), ContainsSubstring("ranks must be between 1 and"));
  CHECK_THROWS_WITH(sw::launch({.ranks = 1 << 20}, program),
                    ContainsSubstring("ranks must be between 1 and"));
  CHECK_THROWS_WITH(sw::launch({.ranks = 1, .deadline = std::chrono::seconds(0)}, program),
                    ContainsSubstring("the deadline must be positive"));
}

TEST_CASE("thread ranks without room for the BLAS are rejected, and a program without a BLAS is not",
          "[comm]") {
  if (sw::detail::linked_blas() == nullptr || shardwright_test::sanitized) // which needs additional room
    return;
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  rlimit before{};
  ::getrlimit(RLIMIT_AS, &before);
  const rlimit tight{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{300} << 20U),
                     before.rlim_max};
  ::setrlimit(RLIMIT_AS, &tight);
  std::string refused;
  std::atomic<int> ran{0};
  try {
    sw::launch({.ranks = 2, .blas_threads = 1}, [&](sw::HostCommunicator) { ran += 10; });
  } catch (const sw::InvalidArgument& error) {
    refused = error.what();
  }
  sw::launch({.ranks = 2, .blas_threads = 0}, [&](sw::HostCommunicator) { ++ran; });
  ::setrlimit(RLIMIT_AS, &before);
  CHECK_THAT(refused, ContainsSubstring("2 thread ranks must find 400 MiB of address space for the BLAS"));
  CHECK(ran.load() == 2);
}

TEST_CASE("a program may run longer than the grace period as long as nothing fails", "[comm]") {
  std::atomic<int> done{0};
  sw::launch({.ranks = 2, .grace = std::chrono::milliseconds(10)}, [&](const sw::HostCommunicator&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ++done;
  });
  CHECK(done.load() == 2);
}

TEST_CASE(
    "a subgroup of ranks that do not exist, or of one rank twice, is rejected on the rank that requests it",
    "[comm]") {
  const auto refused = [](std::vector<int> ranks) {
    std::string out;
    sw::launch({.ranks = 1}, [&](sw::HostCommunicator world) {
      try {
        static_cast<void>(world.subgroup(ranks));
      } catch (const sw::InvalidArgument& error) {
        out = error.what();
      }
    });
    return out;
  };
  CHECK_THAT(refused({0, 1}), ContainsSubstring("at least 0 and below 1, but 1 was given"));
  CHECK_THAT(refused({0, -1}), ContainsSubstring("at least 0 and below 1, but -1 was given"));
  CHECK_THAT(refused({0, 0}), ContainsSubstring("0 is named twice"));
}

TEST_CASE("launches nest", "[comm]") {
  std::atomic<int> inner{0};
  sw::launch({.ranks = 2}, [&](sw::HostCommunicator world) {
    sw::launch({.ranks = 2}, [&](sw::HostCommunicator nested) {
      nested.barrier();
      ++inner;
    });
    world.barrier();
  });
  CHECK(inner.load() == 4);
}

TEST_CASE("a stray variable of a launcher leaves the ranks threads", "[comm]") {
  setenv("PMIX_RANK", "0", 1);
  std::atomic<int> ranks{0};
  std::string told;
  {
    const shardwright_test::StandardError errors;
    sw::launch({.ranks = 2}, [&](sw::HostCommunicator) { ++ranks; });
    told = errors.text();
  }
  unsetenv("PMIX_RANK");
  CHECK(ranks.load() == 2);
  CHECK_THAT(told, ContainsSubstring("PMIX_RANK=0 is set, but PMIX_NAMESPACE is not"));
}

#if !defined(SHARDWRIGHT_WITH_MPI)
TEST_CASE("a program without MPI says so under mpirun", "[comm]") {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  CHECK_THROWS_WITH(sw::launch({}, [](sw::HostCommunicator) {}), ContainsSubstring("must be built with MPI"));
  unsetenv("OMPI_COMM_WORLD_RANK");
  unsetenv("OMPI_COMM_WORLD_SIZE");
}
#endif
