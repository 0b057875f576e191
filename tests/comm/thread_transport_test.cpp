// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_suite.hpp"
#include "support/catch.hpp"
#include "support/launch_ranks.hpp"

#include <shardwright/comm/threads/transport.hpp>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sw = shardwright;
using shardwright_test::launch_ranks;

TEST_CASE("thread ranks pass the communicator suite", "[comm]") {
  for (const int ranks : {1, 2, 3, 4, 5})
    for (const communicator_suite::Part& part : communicator_suite::parts()) {
      INFO(part.name << " on " << ranks << " ranks");
      REQUIRE_NOTHROW(launch_ranks({.ranks = ranks, .deadline = std::chrono::seconds(60)}, part.run));
    }
}

TEST_CASE("thread ranks pass the suite without fingerprints", "[comm]") {
  for (const communicator_suite::Part& part : communicator_suite::parts()) {
    INFO(part.name);
    REQUIRE_NOTHROW(
        launch_ranks({.ranks = 3, .deadline = std::chrono::seconds(60), .check = false}, part.run));
  }
}

TEST_CASE("a decorator of a communicator sees every call", "[comm]") {
  struct Counting : sw::TypedOperations<Counting> {
    sw::HostCommunicator below;
    int* calls = nullptr;
    int rank() const { return below.rank(); }
    int size() const { return below.size(); }
    int world_rank(int rank) const { return below.world_rank(rank); }
    std::string name() const { return below.name(); }
    std::chrono::nanoseconds deadline() const { return below.deadline(); }
    bool valid() const { return below.valid(); }
    void run(const sw::CollectiveCall& call) {
      ++*calls;
      below.run(call);
    }
    sw::Pending start(const sw::CollectiveCall& call) {
      ++*calls;
      return below.start(call);
    }
    Counting split(int colour, int key, const std::string& name, sw::SourceLocation where) {
      Counting out;
      out.below = below.split(colour, key, name, where);
      out.calls = calls;
      return out;
    }
    void abort(const std::string& reason) { below.abort(reason); }
  };
  static_assert(sw::Communicator<Counting>);
  static_assert(sw::Communicator<sw::HostCommunicator>);
  std::vector<int> calls(2);
  launch_ranks({.ranks = 2, .deadline = std::chrono::seconds(30)}, [&](sw::HostCommunicator world) {
    Counting counting;
    counting.below = world;
    counting.calls = &calls[static_cast<std::size_t>(world.rank())];
    sw::HostCommunicator wrapped(counting);
    std::vector<float> data{1};
    wrapped.all_reduce_in_place(data);
    wrapped.barrier_async().wait();
    wrapped.split(0, 0).barrier();
    communicator_suite::require(data[0] == 2, "the decorated result");
  });
  CHECK(calls == std::vector<int>{3, 3});
}

TEST_CASE("thread_world returns a handle for each rank, for the program's own threads", "[comm]") {
  const int ranks = 3;
  std::vector<sw::HostCommunicator> handles = sw::thread_world(ranks, {.deadline = std::chrono::seconds(30)});
  REQUIRE(handles.size() == 3);
  std::vector<float> sums(3);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < handles.size(); ++rank) {
    CHECK(handles[rank].rank() == static_cast<int>(rank));
    CHECK(handles[rank].size() == ranks);
    CHECK(handles[rank].deadline() == std::chrono::seconds(30));
    threads.emplace_back([&sums, rank, own = handles[rank]]() mutable {
      std::vector<float> data{static_cast<float>(rank) + 1};
      own.all_reduce_in_place(data);
      sums[rank] = data[0];
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  CHECK(sums == std::vector<float>(3, 6));
}

TEST_CASE("a gather larger than the caches leaves the gaps between the rows of its blocks untouched",
          "[comm]") {
  constexpr std::size_t stride = 1000, length = 100;
  const std::size_t rows = sw::detail::last_level_cache_bytes() / (4 * stride * sizeof(float)) + 2;
  const std::vector<sw::StridedBlock> blocks{{0, rows, length, stride}, {length, rows, length, stride}};
  CHECK_NOTHROW(
      launch_ranks({.ranks = 2, .deadline = std::chrono::seconds(60)}, [&](sw::HostCommunicator on) {
        const std::vector<float> in(rows * length, static_cast<float>(on.rank() + 1));
        std::vector<float> out(rows * stride, -1), wanted = out;
        for (std::size_t row = 0; row < rows; ++row)
          for (std::size_t i = 0; i < 2 * length; ++i)
            wanted[row * stride + i] = i < length ? 1 : 2;
        on.all_gather(in, out, blocks);
        if (out != wanted)
          throw std::runtime_error("the blocks are not where they belong");
      }));
}
