// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_suite.hpp"
#include "support/catch.hpp"
#include "support/launch_ranks.hpp"

#include <shardwright/comm/decorated_transport.hpp>
#include <shardwright/comm/threads/transport.hpp>

#if defined(__linux__)
#include <sched.h>
#endif

#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sw = shardwright;
using shardwright_test::launch_ranks;

#if defined(__linux__)
namespace {

/// Keeps the calling thread, and those that it starts, on the first core that it may use.
class OnFirstCore {
public:
  OnFirstCore() {
    cpu_set_t first;
    CPU_ZERO(&before_);
    CPU_ZERO(&first);
    sched_getaffinity(0, sizeof(before_), &before_);
    std::size_t core = 0;
    while (core + 1 < CPU_SETSIZE && !CPU_ISSET(core, &before_))
      ++core;
    CPU_SET(core, &first);
    sched_setaffinity(0, sizeof(first), &first);
  }
  OnFirstCore(const OnFirstCore&) = delete;
  OnFirstCore& operator=(const OnFirstCore&) = delete;
  ~OnFirstCore() { sched_setaffinity(0, sizeof(before_), &before_); }

private:
  cpu_set_t before_;
};

} // namespace
#endif

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

TEST_CASE("one thread does all parts of a small call if two ranks of a few are on one core", "[comm]") {
  constexpr std::size_t large = (64 << 10) + 1;
  const auto alone = [](std::vector<int> cores, std::size_t bytes) {
    std::vector<sw::detail::ThreadSlot> slots(cores.size());
    for (std::size_t rank = 0; rank < cores.size(); ++rank) {
      slots[rank].core = cores[rank];
      slots[rank].in = {4096, 4096 + bytes};
      slots[rank].out = {4096, 4096 + bytes};
    }
    return sw::detail::small_on_one_core(slots.data(), static_cast<int>(slots.size()));
  };
  CHECK(alone({3, 3}, 4));
  CHECK(alone({0, 1, 2, 1}, large - 1));
  CHECK_FALSE(alone({0, 1}, 4));
  CHECK_FALSE(alone({-1, -1}, 4)); // not known
  CHECK_FALSE(alone({3, 3}, large));
  CHECK_FALSE(alone(std::vector<int>(9, 3), 4));
}

#if defined(__linux__)
TEST_CASE("ranks on one of several cores pass the communicator suite", "[comm]") {
  for (const communicator_suite::Part& part : communicator_suite::parts()) {
    INFO(part.name);
    REQUIRE_NOTHROW(
        launch_ranks({.ranks = 2, .deadline = std::chrono::seconds(60)}, [&](sw::HostCommunicator world) {
          const OnFirstCore pinned;
          part.run(std::move(world));
        }));
  }
}
#endif

TEST_CASE("a decorator of a communicator sees every call", "[comm]") {
  struct Counting final : sw::detail::DecoratedTransport<sw::HostCommunicator> {
    Counting(sw::HostCommunicator counted, int* count)
        : DecoratedTransport(std::move(counted)), calls(count) {}
    void run(const sw::CollectiveCall& call) override {
      ++*calls;
      below().run(call);
    }
    sw::Pending start(const sw::CollectiveCall& call) override {
      ++*calls;
      return below().start(call);
    }
    std::shared_ptr<sw::Transport> around(sw::HostCommunicator part) const override {
      return std::make_shared<Counting>(std::move(part), calls);
    }
    int* calls;
  };
  std::vector<int> calls(2);
  launch_ranks({.ranks = 2, .deadline = std::chrono::seconds(30)}, [&](sw::HostCommunicator world) {
    int* const count = &calls[static_cast<std::size_t>(world.rank())];
    sw::HostCommunicator wrapped(std::make_shared<Counting>(world, count));
    std::vector<float> data{1};
    wrapped.all_reduce_in_place(data);
    wrapped.async().barrier().wait();
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
