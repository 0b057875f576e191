// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime of the device layer over a fake of CUDA's library, which notes everything that CUDA
// forbids.

// The host's compiler ignores the attribute of a kernel.
#pragma GCC diagnostic ignored "-Wattributes"

#include "support/fake_cuda.hpp" // before the headers under test

#include "comm/communicator_suite.hpp"
#include "comm/rank_outcomes.hpp"
#include "cuda/buffer.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/device/cuda_graphs.hpp>
#include <shardwright/device/cuda_runtime.hpp>
#include <shardwright/device/device_clock.hpp>
#include <shardwright/device/peers/transport.hpp>
#include <shardwright/train/step/graph.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sw = shardwright;
using rank_outcomes::ample;
using shardwright_test::launch_ranks;

namespace {

using Complaints = std::vector<std::string>;

/// A rank's stream, and a communicator of ranks that share the device.
struct Place {
  explicit Place(const sw::HostCommunicator& group)
      : runtime(0), stream(runtime.make_stream()),
        comm(sw::timed_like(
            group,
            sw::DeviceCommunicator(sw::PeerTransport<sw::CudaRuntime>::connect(group, runtime, stream)),
            runtime, stream)) {}

  template <class E> [[nodiscard]] cuda_test::CudaBuffer<E> put(const std::vector<E>& numbers) const {
    return {stream.get(), numbers};
  }
  template <class E> [[nodiscard]] std::vector<E> get(const cuda_test::CudaBuffer<E>& numbers) const {
    return numbers.read();
  }

  sw::CudaRuntime runtime;
  sw::CudaRuntime::Stream stream;
  sw::DeviceCommunicator comm;
};

/// Adds one to each number.
struct Increase {
  float* numbers;
  void operator()(unsigned, std::uint64_t tile, unsigned lane) const {
    if (lane == 0)
      numbers[tile] += 1;
  }
};

} // namespace

TEST_CASE("thread ranks obey CUDA's rules throughout the communicator suite", "[comm]") {
  for (const int ranks : {1, 2, 3})
    for (const auto& part : communicator_suite::parts<const Place&>()) {
      INFO(part.name << " on " << ranks << " ranks");
      fake_cuda::library().reset(17u * static_cast<unsigned>(ranks));
      REQUIRE_NOTHROW(
          launch_ranks({.ranks = ranks, .deadline = ample}, [&](const sw::HostCommunicator& world) {
            const auto clock = ranks == 3 ? std::make_shared<sw::CommunicationClock>() : nullptr;
            part.run(Place(sw::timed(world, clock)));
          }));
      CHECK(fake_cuda::library().counts() == fake_cuda::Counts{});
      CHECK(fake_cuda::library().complaints() == Complaints{});
    }
}

TEST_CASE("a step of two streams is captured and replayed by CUDA's rules", "[comm]") {
  fake_cuda::library().reset(5);
  {
    sw::CudaRuntime runtime(0);
    auto stream = runtime.make_stream(), side = runtime.make_stream();
    auto forked = runtime.make_event(), joined = runtime.make_event();
    auto data = runtime.make_memory(stream, 4 * sizeof(float)),
         copy = runtime.make_memory(stream, 4 * sizeof(float));
    auto table = runtime.make_table(4 * sizeof(float));
    auto* const start = reinterpret_cast<float*>(table.host());
    std::fill_n(start, 4, 1.0F);
    runtime.copy(stream, data.data(), start, data.bytes());
    sw::StepGraph<sw::detail::CudaGraphs> graph(sw::detail::CudaGraphs(stream, 0));
    std::vector<sw::StepMode> modes;
    for (int i = 0; i < 5; ++i)
      modes.push_back(graph.step([&] {
        runtime.launch(stream, Increase{reinterpret_cast<float*>(data.data())}, 1, 4);
        runtime.record(forked, stream);
        runtime.wait(side, forked);
        runtime.copy(side, copy.data(), data.data(), data.bytes());
        runtime.record(joined, side);
        runtime.wait(stream, joined);
        runtime.launch(stream, Increase{reinterpret_cast<float*>(data.data())}, 1, 4);
      }));
    using enum sw::StepMode;
    CHECK(modes == std::vector{plain, plain, captured, replayed, replayed});
    runtime.copy(stream, table.host(), copy.data(), copy.bytes());
    REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
    CHECK(std::vector<float>(start, start + 4) == std::vector<float>(4, 10.0F));
  }
  CHECK(fake_cuda::library().complaints() == Complaints{});
  CHECK(fake_cuda::library().counts() == fake_cuda::Counts{});
}

TEST_CASE("a step that cannot be captured runs call by call", "[comm]") {
  const auto modes_of = [](auto spoil) {
    fake_cuda::library().reset(6);
    sw::CudaRuntime runtime(0);
    auto stream = runtime.make_stream(), side = runtime.make_stream();
    auto event = runtime.make_event();
    auto data = runtime.make_memory(stream, 4);
    runtime.record(event, side);
    sw::StepGraph<sw::detail::CudaGraphs> graph(sw::detail::CudaGraphs(stream, 0));
    std::vector<sw::StepMode> modes;
    for (int i = 0; i < 4; ++i)
      modes.push_back(graph.step([&] {
        runtime.launch(stream, Increase{reinterpret_cast<float*>(data.data())}, 1, 1);
        spoil(runtime, stream, side, event);
      }));
    static_cast<void>(cudaStreamSynchronize(stream.get()));
    static_cast<void>(cudaStreamSynchronize(side.get()));
    return modes;
  };
  const std::vector<sw::StepMode> plain(4, sw::StepMode::plain);
  using Stream = sw::CudaRuntime::Stream;
  using Event = sw::CudaRuntime::Event;
  CHECK(modes_of([](sw::CudaRuntime&, Stream& stream, Stream&, Event&) {
          static_cast<void>(cudaStreamSynchronize(stream.get()));
        }) == plain);
  CHECK(fake_cuda::library().complaints() == Complaints{"a wait for a stream in a capture"});
  CHECK(modes_of([](sw::CudaRuntime& runtime, Stream& stream, Stream& side, Event& event) {
          runtime.record(event, stream);
          runtime.wait(side, event);
          runtime.launch(side, Increase{nullptr}, 1, 0);
        }) == plain);
  CHECK(fake_cuda::library().complaints() == Complaints{"a captured stream has not joined the first one"});
  // What only a first launch does is over before the capture.
  CHECK(modes_of([first = true](sw::CudaRuntime&, Stream& stream, Stream&, Event&) mutable {
          if (std::exchange(first, false))
            static_cast<void>(cudaStreamSynchronize(stream.get()));
        }).at(2) == sw::StepMode::captured);
  CHECK(fake_cuda::library().complaints() == Complaints{});
}

TEST_CASE("the fake of CUDA's library detects what CUDA forbids", "[comm]") {
  const auto complaints_of = [](auto breaks, int devices = 1) {
    fake_cuda::library().reset(7, devices);
    sw::CudaRuntime runtime(0);
    {
      auto stream = runtime.make_stream();
      auto event = runtime.make_event();
      try {
        breaks(runtime, stream, event);
      } catch (const sw::TransportError&) {
      }
      static_cast<void>(cudaStreamSynchronize(stream.get()));
    }
    static_cast<void>(fake_cuda::library().counts()); // runs the remaining work
    return fake_cuda::library().complaints();
  };
  using Stream = sw::CudaRuntime::Stream;
  using Event = sw::CudaRuntime::Event;
  CHECK(complaints_of([](sw::CudaRuntime& runtime, Stream& stream, Event& event) {
          runtime.wait(stream, event);
        }) == Complaints{"a stream waits for an event that was never recorded"});
  CHECK(complaints_of([](sw::CudaRuntime& runtime, Stream&, Event& event) {
          static_cast<void>(runtime.done(event));
        }) == Complaints{"an event is asked that was never recorded"});
  CHECK(complaints_of([](sw::CudaRuntime& runtime, Stream& stream, Event& event) {
          auto other = runtime.make_event();
          runtime.record(event, stream);
          runtime.record(other, stream);
          static_cast<void>(runtime.seconds(event, other));
        }) == Complaints{"a time is asked of events that do not measure it"});
  CHECK(complaints_of([](sw::CudaRuntime& runtime, Stream& stream, Event&) {
          void* memory = nullptr;
          static_cast<void>(cudaMalloc(&memory, 4));
          for (int i = 0; i < 99; ++i)
            runtime.launch(stream, Increase{static_cast<float*>(memory)}, 1, 1);
          static_cast<void>(cudaFree(memory));
        }) == Complaints{"memory is given back while work that knows it is under way"});
  CHECK(complaints_of([](sw::CudaRuntime& runtime, Stream& stream, Event&) {
          auto other = runtime.make_stream();
          const auto memory = runtime.make_memory(other, 4);
          for (int i = 0; i < 99; ++i)
            runtime.launch(stream, Increase{reinterpret_cast<float*>(memory.data())}, 1, 1);
        }) == Complaints{"memory is given back while work of another stream knows it"});
  CHECK(complaints_of([](sw::CudaRuntime& runtime, Stream& stream, Event&) {
          auto other = runtime.make_stream();
          auto memory = runtime.make_memory(other, 4);
          for (int i = 0; i < 99; ++i)
            runtime.launch(stream, Increase{reinterpret_cast<float*>(memory.data())}, 1, 1);
          memory.follow(stream);
        }) == Complaints{});
  CHECK(complaints_of([](sw::CudaRuntime& runtime, Stream& stream, Event&) {
          const auto memory = runtime.make_memory(stream, 4);
          for (int i = 0; i < 99; ++i)
            runtime.launch(stream, Increase{reinterpret_cast<float*>(memory.data())}, 1, 1);
        }) == Complaints{});
  CHECK(complaints_of(
            [](sw::CudaRuntime& runtime, Stream&, Event& event) {
              auto elsewhere = sw::CudaRuntime(1).make_stream();
              runtime.record(event, elsewhere);
            },
            2) == Complaints{"an event is recorded on a stream of another device"});
  CHECK(complaints_of([](sw::CudaRuntime& runtime, Stream& stream, Event&) {
          runtime.call(
              stream, [](void*) { static_cast<void>(cudaSetDevice(0)); }, nullptr);
        }) == Complaints{"a host function calls CUDA"});
  CHECK(complaints_of([](sw::CudaRuntime& runtime, Stream& stream, Event&) {
          sw::detail::CudaGraphs graphs(stream, 0);
          graphs.begin();
          try {
            static_cast<void>(runtime.make_table(4));
          } catch (const sw::TransportError&) {
          }
          CHECK_FALSE(graphs.end());
        }) == Complaints{"an allocation in a capture"});
  CHECK(complaints_of([](sw::CudaRuntime& runtime, Stream& stream, Event& event) {
          auto side = runtime.make_stream();
          runtime.record(event, side);
          sw::detail::CudaGraphs graphs(stream, 0);
          graphs.begin();
          CHECK_THROWS_AS(runtime.wait(stream, event), sw::TransportError);
          CHECK_FALSE(graphs.end());
        }) == Complaints{"a captured stream waits for an event from outside its capture"});
  fake_cuda::library().reset(8);
  auto kept = sw::CudaRuntime(0).make_event();
  CHECK(fake_cuda::library().counts() == fake_cuda::Counts{.events = 1});
}
