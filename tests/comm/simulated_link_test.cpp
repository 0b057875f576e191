// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_suite.hpp"
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <shardwright/comm/observe/simulated_link.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;
using shardwright_test::Findings;
using shardwright_test::launch_ranks;
using shardwright_test::on_ranks;
using Clock = sw::CallTimes::Clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

sw::CollectiveCall call_of(sw::Operation operation, std::size_t count) {
  sw::CollectiveCall call;
  call.operation = operation;
  call.element = sw::ElementType::float32;
  call.count = count;
  return call;
}

/// An all_reduce whose times are kept.
struct TimedCall {
  explicit TimedCall(std::size_t count) : data(count) {
    call.operation = sw::Operation::all_reduce;
    call.element = sw::ElementType::float32;
    call.count = count;
    call.in = call.out = data.data();
    call.times = &times;
  }
  std::vector<float> data;
  sw::CallTimes times;
  sw::CollectiveCall call;
};

} // namespace

TEST_CASE("a communicator behind a slow link passes the communicator suite", "[comm]") {
  const sw::LinkOptions link{.latency_seconds = 2e-6, .bytes_per_second = 4e9};
  for (const int ranks : {1, 2, 3})
    for (const communicator_suite::Part& part : communicator_suite::parts()) {
      INFO(part.name << " on " << ranks << " ranks");
      REQUIRE_NOTHROW(launch_ranks(
          {.ranks = ranks, .deadline = std::chrono::seconds(60)},
          [&](sw::HostCommunicator world) { part.run(sw::simulated_link(std::move(world), link)); }));
    }
}

TEST_CASE("the cost of a call is that of the ring algorithms", "[comm]") {
  const auto cost = [](sw::Operation operation, std::size_t count, int ranks) {
    return sw::link_cost(call_of(operation, count), 0, ranks);
  };
  // Bytes of 1000 floats on each rank, or of 1000 per rank.
  CHECK(cost(sw::Operation::all_reduce, 1000, 4).bytes == 2 * 0.75 * 4000);
  CHECK(cost(sw::Operation::all_reduce, 1000, 4).steps == 6);
  CHECK(cost(sw::Operation::all_gather, 1000, 4).bytes == 3 * 4000);
  CHECK(cost(sw::Operation::reduce_scatter, 1000, 4).bytes == 3 * 4000);
  CHECK(cost(sw::Operation::reduce_scatter, 1000, 4).steps == 3);
  CHECK(cost(sw::Operation::all_to_all, 1000, 4).bytes == 3 * 4000);
  CHECK(cost(sw::Operation::broadcast, 1000, 4).bytes == 4000);
  CHECK(cost(sw::Operation::send, 1000, 4).steps == 1);
  CHECK(cost(sw::Operation::receive, 1000, 4).bytes == 4000);
  CHECK(cost(sw::Operation::barrier, 0, 5).steps == 3);
  CHECK(cost(sw::Operation::barrier, 0, 4).steps == 2);
  CHECK(cost(sw::Operation::all_reduce, 1000, 1).seconds({1, 1}) == 0);
  CHECK(sw::LinkCost{3, 600}.seconds({.latency_seconds = 0.5, .bytes_per_second = 100}) == 7.5);
  CHECK(sw::LinkCost{3, 600}.seconds({.latency_seconds = 0.5}) == 1.5);

  // Uneven blocks: the bytes sent to others or received from them, whichever is more.
  const std::vector<std::size_t> sent{5, 10, 20}, received{5, 1, 2};
  const std::vector<sw::StridedBlock> in = sw::packed_blocks(sent), out = sw::packed_blocks(received);
  sw::CollectiveCall call = call_of(sw::Operation::all_to_all, 0);
  call.in_blocks = in;
  call.out_blocks = out;
  CHECK(sw::link_cost(call, 0, 3).bytes == 30 * 4);
  CHECK(sw::link_cost(call, 2, 3).bytes == 15 * 4);
  call.operation = sw::Operation::all_gather;
  CHECK(sw::link_cost(call, 0, 3).bytes == 8 * 4 * 2.0 / 3);
}

TEST_CASE("calls take their time on the link and queue there, in the order in which all ranks arrived",
          "[comm]") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          // Two ranks: 4 n bytes for n floats, and two steps.
          constexpr double latency = 1e-3, bandwidth = 4e6;
          sw::HostCommunicator linked = sw::simulated_link(world, {latency, bandwidth});
          sw::HostCommunicator part = linked.split(0, world.rank(), "part");
          TimedCall first(10'000), second(20'000), third(10'000);
          const auto begin = Clock::now();
          sw::Pending a = linked.start(first.call);
          // A call of another group of the same rank queues behind it, though it is waited for first.
          while (!a.ready())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          sw::Pending b = linked.start(second.call);
          sw::Pending c = part.start(third.call);
          c.wait();
          b.wait();
          a.wait();
          findings.expect(seconds(Clock::now() - begin) >= 3 * 2 * latency + 40'000 * 4 / bandwidth,
                          "the link carried more than it can");
          const auto length = [](const TimedCall& call) {
            return seconds(call.times.ended_at() - call.times.begun_at());
          };
          findings.expect(length(first) >= 2 * latency + 40'000 / bandwidth - 1e-8, "first ", length(first));
          findings.expect(length(second) >= 2 * latency + 80'000 / bandwidth - 1e-8, "second ",
                          length(second));
          findings.expect(length(third) >= 2 * latency + 40'000 / bandwidth - 1e-8, "third ", length(third));
          findings.expect(second.times.begun_at() >= first.times.begun_at() + (std::chrono::milliseconds(12)),
                          "the second began before the first had ended");
          const bool in_turn =
              second.times.begun_at() >= third.times.begun_at() + std::chrono::milliseconds(12) ||
              third.times.begun_at() >= second.times.begun_at() + std::chrono::milliseconds(22);
          findings.expect(in_turn, "two groups had the link at a time");
        }) == "");
}

TEST_CASE("a started call proceeds while its rank computes, and directions are independent", "[comm]") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          sw::HostCommunicator linked = sw::simulated_link(world, {0, 1e6});
          const int other = 1 - world.rank();
          std::vector<float> out(10'000, 1.0f), in(10'000);
          sw::CallTimes sent, received;
          sw::CollectiveCall send = call_of(sw::Operation::send, out.size()),
                             receive = call_of(sw::Operation::receive, in.size());
          send.root = receive.root = other;
          send.in = out.data();
          receive.out = in.data();
          send.times = &sent;
          receive.times = &received;
          sw::Pending r = linked.start(receive);
          sw::Pending s = linked.start(send);
          // No rank waits here, and still both calls end.
          while (!(r.ready() && s.ready()))
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          r.wait();
          s.wait();
          findings.expect(in == out, "the message");
          for (const sw::CallTimes* times : {&sent, &received})
            findings.expect(seconds(times->ended_at() - times->begun_at()) >= 0.04 - 1e-8, "40 kB at 1 MB/s");
          findings.expect(sent.begun_at() < received.ended_at() && received.begun_at() < sent.ended_at(),
                          "a send and a receive queued behind one another");
        }) == "");
}

TEST_CASE("errors and dropped calls pass through a slow link, and so does the deadline", "[comm]") {
  const auto sentence_of = [](auto program) -> std::string {
    try {
      launch_ranks({.ranks = 2, .deadline = std::chrono::milliseconds(500)}, program);
    } catch (const sw::Error& error) {
      return error.what();
    }
    return "no error";
  };
  const sw::LinkOptions quick{1e-6, 1e9};
  CHECK_THAT(sentence_of([&](sw::HostCommunicator world) {
               std::vector<float> data(world.rank() == 0 ? 3 : 4);
               sw::simulated_link(world, quick).all_reduce_in_place(data);
             }),
             ContainsSubstring("all_reduce") && ContainsSubstring("count"));
  CHECK_THAT(sentence_of([&](sw::HostCommunicator world) {
               sw::HostCommunicator linked = sw::simulated_link(world, quick);
               std::vector<float> data(4);
               static_cast<void>(linked.async().all_reduce_in_place(data));
               linked.barrier();
             }),
             ContainsSubstring("was dropped"));
  CHECK_THAT(sentence_of([&](sw::HostCommunicator world) {
               if (world.rank() == 0)
                 throw sw::InvalidArgument("rank 0 has had enough");
               sw::simulated_link(world, quick).async().barrier().wait();
             }),
             ContainsSubstring("rank 0 has had enough"));
  CHECK_THAT(sentence_of([](sw::HostCommunicator world) {
               std::vector<float> data(1000);
               sw::simulated_link(world, {0, 1}).all_reduce_in_place(data);
             }),
             ContainsSubstring("the simulated link must carry a call within the deadline"));
  CHECK_THAT(sentence_of([](sw::HostCommunicator world) {
               static_cast<void>(sw::simulated_link(world, {-1, 1}));
             }),
             ContainsSubstring("must not be negative"));
}
