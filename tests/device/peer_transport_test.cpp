// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_suite.hpp"
#include "comm/rank_outcomes.hpp"
#include "support/catch.hpp"
#include "support/fake_place.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <shardwright/comm/decorated_transport.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sw = shardwright;
using rank_outcomes::ample;
using rank_outcomes::as;
using rank_outcomes::brief;
using rank_outcomes::text;
using shardwright_test::ContainsSubstring;
using shardwright_test::FakePlace;
using shardwright_test::FakeRuntime;
using shardwright_test::FakeSignal;
using shardwright_test::Findings;
using shardwright_test::launch_ranks;
using shardwright_test::on_ranks;

namespace {

using Numbers = std::vector<float>;

/// A gate at which a stream waits until the test opens it.
std::shared_ptr<FakeSignal> gate_on(const FakePlace& place) {
  auto gate = std::make_shared<FakeSignal>();
  FakeRuntime::Stream stream = place.stream;
  stream.run([gate] { gate->wait(); });
  return gate;
}

/// Polls until a condition holds, which must be before the time limit of the test.
template <class Holds> bool comes_true(Holds holds) {
  const auto end = std::chrono::steady_clock::now() + ample;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end)
      return false;
    std::this_thread::yield();
  }
  return true;
}

Numbers of_rank(int rank, std::size_t count) {
  return communicator_suite::elements_of<float>(rank, count, 3);
}
Numbers sum_of(int ranks, std::size_t count, float factor = 1) {
  Numbers out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = factor * communicator_suite::exact<float>(ranks, i, 3, sw::ReduceOp::sum);
  return out;
}

} // namespace

/// Runs an action on its rank after every broadcast.
class AfterBroadcast final : public sw::detail::DecoratedTransport<sw::HostCommunicator> {
public:
  AfterBroadcast(sw::HostCommunicator below, std::function<void()> after)
      : DecoratedTransport(std::move(below)), after_(std::move(after)) {}
  void run(const sw::CollectiveCall& call) override {
    below().run(call);
    if (call.operation == sw::Operation::broadcast)
      after_();
  }
  [[nodiscard]] sw::Pending start(const sw::CollectiveCall& call) override { return below().start(call); }

private:
  [[nodiscard]] std::shared_ptr<sw::Transport> around(sw::HostCommunicator part) const override {
    return std::make_shared<AfterBroadcast>(std::move(part), after_);
  }
  std::function<void()> after_;
};

TEST_CASE("a failure while ranks connect keeps the memory that slow ranks have yet to read", "[comm]") {
  const FakeRuntime runtime;
  std::atomic<bool> gone{false};
  const auto connect = [&](const sw::HostCommunicator& world) {
    const auto after = [&] {
      if (world.rank() == 2)
        throw std::runtime_error("no stream for rank 2");
      if (world.rank() == 1) // until the rank whose group it is has left
        static_cast<void>(comes_true([&] { return gone.load(); }));
    };
    try {
      FakeRuntime own = runtime;
      auto stream = own.make_stream();
      static_cast<void>(sw::PeerTransport<FakeRuntime>::connect(
          sw::HostCommunicator(std::make_shared<AfterBroadcast>(world, after)), own, stream));
    } catch (...) {
      if (world.rank() == 0)
        gone = true;
      throw;
    }
  };
  CHECK_THROWS_WITH(launch_ranks({.ranks = 3, .deadline = ample}, connect),
                    ContainsSubstring("no stream for rank 2"));
  CHECK(gone.load());
}

TEST_CASE("thread ranks on one device pass the communicator suite", "[comm]") {
  struct Group {
    int ranks;
    bool asynchronous; // streams are threads, of which larger groups have more
  };
  for (const auto [ranks, asynchronous] : {Group{1, true}, {3, true}, {4, false}})
    for (const auto& part : communicator_suite::parts<FakePlace>()) {
      INFO(part.name << " on " << ranks << " ranks, " << (asynchronous ? "asynchronous" : "at once"));
      const FakeRuntime runtime =
          asynchronous ? FakeRuntime(17u * static_cast<unsigned>(ranks)) : FakeRuntime();
      REQUIRE_NOTHROW(launch_ranks(
          {.ranks = ranks, .deadline = ample}, [&, ranks = ranks](const sw::HostCommunicator& world) {
            // Three ranks with a clock.
            const auto clock = ranks == 3 ? std::make_shared<sw::CommunicationClock>() : nullptr;
            part.run(FakePlace(sw::timed(world, clock), runtime));
          }));
    }
}

TEST_CASE("kernels find their elements in rows of any size", "[comm]") {
  using Access = sw::detail::PeerAccess<sw::detail::PeerVector<float, 4>>;
  const std::uint64_t large = std::uint64_t{1} << 33U;
  std::byte begin{};
  for (const std::uint64_t row : {std::uint64_t{3}, std::uint64_t{1} << 16U, large})
    for (const std::uint64_t i : {std::uint64_t{0}, row - 1, row, 7 * row + 2, large + 5}) {
      const sw::detail::PeerEntry rows{&begin, row, row + 9};
      const auto found = reinterpret_cast<std::uintptr_t>(Access::address(rows, i));
      const std::uint64_t wanted = (i / row * (row + 9) + i % row) * 16;
      CHECK(found - reinterpret_cast<std::uintptr_t>(&begin) == wanted);
    }
}

TEST_CASE("a call is ordered with earlier and later work of the stream, without a wait on the host",
          "[comm]") {
  CHECK(on_ranks(3, [](const sw::HostCommunicator& world, Findings& findings) {
          FakePlace place(world, FakeRuntime(5));
          auto data = place.put(of_rank(world.rank(), 900));
          const auto gate = gate_on(place);
          data.run([](Numbers& numbers) {
            for (float& number : numbers)
              number *= 2;
          });
          place.comm.all_reduce_in_place(data); // returns although no stream has come to it
          data.run([](Numbers& numbers) {
            for (float& number : numbers)
              number *= 4;
          });
          auto other = place.put(Numbers(900));
          sw::Pending copied = place.comm.async().all_reduce(data, other, sw::ReduceOp::maximum);
          std::this_thread::sleep_for(std::chrono::milliseconds(20)); // for a kernel that does not wait
          findings.expect(!copied.ready(), "a call behind a closed gate is done");
          gate->set();
          copied.wait();
          const Numbers wanted = sum_of(3, 900, 8);
          findings.expect(place.get(other) == wanted, "the later call saw what the stream wrote before it");
          findings.expect(place.get(data) == wanted, "kernels before and after the call");
        }) == "");
}

TEST_CASE("a started call runs concurrently with later work of the stream", "[comm]") {
  CHECK(on_ranks(3, [](const sw::HostCommunicator& world, Findings& findings) {
          FakePlace place(world, FakeRuntime(6));
          auto data = place.put(of_rank(world.rank(), 500));
          sw::Pending pending = place.comm.async().all_reduce_in_place(data);
          const auto gate = gate_on(place);
          findings.expect(comes_true([&] { return pending.ready(); }),
                          "a started call waits for later work of the stream");
          gate->set();
          pending.wait();
          data.run([](Numbers& numbers) {
            for (float& number : numbers)
              number *= 2;
          });
          findings.expect(place.get(data) == sum_of(3, 500, 2),
                          "the stream is behind the call after the wait");
        }) == "");
}

TEST_CASE("messages are ordered with the streams of both sides", "[comm]") {
  for (const int late : {0, 1})
    CHECK(on_ranks(2, [late](sw::HostCommunicator world, Findings& findings) {
            FakePlace place(world, FakeRuntime(8));
            const int other = 1 - world.rank();
            auto data = place.put(of_rank(world.rank(), 300)), got = place.put(Numbers(300));
            const auto gate = world.rank() == late ? gate_on(place) : nullptr;
            data.run([](Numbers& numbers) {
              for (float& number : numbers)
                number *= 2;
            });
            sw::Pending received = place.comm.async().receive(got, other);
            place.comm.send(data, other);
            data.run([](Numbers& numbers) { std::fill(numbers.begin(), numbers.end(), -1.0f); });
            std::this_thread::sleep_for(std::chrono::milliseconds(20)); // for a copy that does not wait
            findings.expect(!received.ready(), "a message is carried before both streams have come to it");
            world.barrier();
            if (gate)
              gate->set();
            received.wait();
            Numbers wanted = of_rank(other, 300);
            for (float& number : wanted)
              number *= 2;
            findings.expect(place.get(got) == wanted, "the message holds what its sender wrote before it");
          }) == "");
}

TEST_CASE("calls of two overlapping groups proceed concurrently", "[comm]") {
  CHECK(on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
          FakePlace place(world, FakeRuntime(9));
          sw::DeviceCommunicator row = place.comm.split(world.rank() / 2, world.rank(), "row");
          sw::DeviceCommunicator column = place.comm.split(world.rank() % 2, world.rank(), "column");
          for (int round = 0; round < 20; ++round) {
            auto a = place.put(std::vector<int>{world.rank() + round}),
                 b = place.put(std::vector<int>{10 * world.rank()});
            sw::Pending of_row = row.async().all_reduce_in_place(a);
            sw::Pending of_column = column.async().all_reduce_in_place(b);
            if (round % 2 == 0)
              of_row.wait();
            of_column.wait();
            if (round % 2 != 0)
              of_row.wait();
            row.all_reduce_in_place(b); // of both columns: the whole world
            findings.expect(place.get(a)[0] == world.rank() / 2 * 4 + 1 + 2 * round, "row");
            findings.expect(place.get(b)[0] == 60, "column, then row");
          }
        }) == "");
}

TEST_CASE("programs of random calls, kernels and waits give the same bits as the host", "[comm]") {
  for (const unsigned seed : {1u, 2u, 3u, 4u})
    CHECK(on_ranks(4, [seed](sw::HostCommunicator world, Findings& findings) {
            FakePlace place(world, FakeRuntime(100 * seed));
            std::array<sw::HostCommunicator, 3> host{world, world.split(world.rank() / 2, 0, "row"),
                                                     world.split(world.rank() % 2, 0, "column")};
            std::array<sw::DeviceCommunicator, 3> device{place.comm, place.comm.split(world.rank() / 2, 0),
                                                         place.comm.split(world.rank() % 2, 0)};
            constexpr std::size_t count = 4 * 137;
            struct Pair {
              Numbers on_host;
              shardwright_test::FakeBuffer<float> on_device;
              sw::Pending pending{};
              bool started = false;
              void settle() {
                if (std::exchange(started, false))
                  pending.wait();
              }
            };
            std::vector<Pair> pairs;
            for (std::uint64_t i = 0; i < 6; ++i) {
              Numbers numbers = communicator_suite::elements_of<float>(world.rank(), count, i);
              pairs.push_back({numbers, place.put(numbers)});
            }
            std::mt19937 random(seed); // the same on all ranks
            for (int step = 0; step < 120; ++step) {
              const std::size_t from = random() % 6, to = (from + 1 + random() % 5) % 6, group = random() % 3;
              Pair &in = pairs[from], &out = pairs[to];
              in.settle();
              out.settle();
              sw::HostCommunicator& by_host = host[group];
              sw::DeviceCommunicator& by_device = device[group];
              const std::size_t part = count / static_cast<std::size_t>(by_host.size());
              const bool starts = random() % 2 == 0;
              const auto keep = [](Pair& pair, sw::Pending pending) {
                pair.pending = std::move(pending);
                pair.started = true;
              };
              switch (random() % 6) {
              case 0:
                by_host.all_reduce_in_place(out.on_host, sw::ReduceOp::average);
                if (starts)
                  keep(out, by_device.async().all_reduce_in_place(out.on_device, sw::ReduceOp::average));
                else
                  by_device.all_reduce_in_place(out.on_device, sw::ReduceOp::average);
                break;
              case 1:
                by_host.all_to_all(in.on_host, out.on_host);
                by_device.all_to_all(in.on_device, out.on_device);
                break;
              case 2: {
                const std::span<const float> whole(in.on_device.data(), count);
                const std::span<float> own(out.on_device.data(), part);
                by_host.reduce_scatter(in.on_host, std::span<float>(out.on_host.data(), part));
                if (starts)
                  keep(out, by_device.async().reduce_scatter(whole, own));
                else
                  by_device.reduce_scatter(whole, own);
                out.settle(); // the input is free again
                break;
              }
              case 3:
                by_host.all_gather_in_place(out.on_host);
                if (starts)
                  keep(out, by_device.async().all_gather_in_place(out.on_device));
                else
                  by_device.all_gather_in_place(out.on_device);
                break;
              case 4: {
                const int size = by_host.size(), rank = by_host.rank();
                sw::Pending sent = by_device.async().send(in.on_device, (rank + 1) % size, step);
                by_device.receive(out.on_device, (rank + size - 1) % size, step);
                sent.wait();
                sent = by_host.async().send(in.on_host, (rank + 1) % size, step);
                by_host.receive(out.on_host, (rank + size - 1) % size, step);
                sent.wait();
                break;
              }
              default: {
                const auto halve = [](Numbers& numbers) {
                  for (float& number : numbers)
                    number *= 0.5f;
                };
                halve(out.on_host);
                out.on_device.run(halve);
              }
              }
            }
            for (Pair& pair : pairs) {
              pair.settle();
              findings.expect(place.get(pair.on_device) == pair.on_host, "seed ", seed);
            }
          }) == "");
}

TEST_CASE("device calls in steady state create nothing new, even with long work lists", "[comm]") {
  FakeRuntime runtime; // at once, so the work of a round is done when the round ends
  CHECK(on_ranks(12, [&](const sw::HostCommunicator& world, Findings& findings) {
          FakePlace place(world, runtime);
          auto in = place.put(std::vector<int>(96, world.rank())), out = place.put(std::vector<int>(96));
          auto sum = place.put(Numbers(300, 1));
          const int next = (world.rank() + 1) % 12, before = (world.rank() + 11) % 12;
          for (int step = 0; step < 50; ++step) {
            place.comm.all_to_all(in, out);
            sw::Pending reduced = place.comm.async().all_reduce_in_place(sum, sw::ReduceOp::maximum);
            sw::Pending sent = place.comm.async().send(in, next);
            place.comm.receive(out, before);
            sent.wait();
            reduced.wait();
            place.comm.barrier();
          }
          findings.expect(place.get(out) == std::vector<int>(96, before), "messages");
        }) == "");
  // A rank is ahead of another by one blocking call at most: four rounds, and two messages of each rank.
  CHECK(runtime.counts().events <= 4 * (12 + 1) + 12 * 2 * 2);
  CHECK(runtime.counts().tables <= 4);
  CHECK(runtime.counts().tables > 0);
  CHECK(runtime.counts().launches == 50 * 2);
  CHECK(runtime.counts().copies == 50 * 12);
}

TEST_CASE("tables for long work lists are created before a call needs them, if one may", "[comm]") {
  struct Group {
    int ranks;
    bool tables;
  };
  for (const auto [ranks, tables] : {Group{7, false}, {8, true}, {12, true}}) {
    FakeRuntime runtime; // at once
    std::atomic<long> before{0};
    CHECK(on_ranks(ranks, [&](sw::HostCommunicator world, Findings& findings) {
            FakePlace place(world, runtime);
            const auto all = static_cast<std::size_t>(world.size());
            auto in = place.put(std::vector<int>(all, world.rank())), out = place.put(std::vector<int>(all));
            for (int step = 0; step < 5; ++step)
              place.comm.barrier();
            world.barrier();
            before = runtime.counts().tables.load();
            world.barrier();
            for (int step = 0; step < 5; ++step)
              place.comm.all_to_all(in, out);
            std::vector<int> wanted(all);
            for (std::size_t rank = 0; rank < all; ++rank)
              wanted[rank] = static_cast<int>(rank);
            findings.expect(place.get(out) == wanted, "all_to_all");
          }) == "");
    CHECK((before > 0) == tables);
    CHECK(runtime.counts().tables == before);
  }
}

TEST_CASE("no work list is longer than that of an all-to-all", "[comm]") {
  for (int ranks = 1; ranks <= 12; ++ranks) {
    std::vector<sw::detail::ThreadSlot> slots(static_cast<std::size_t>(ranks));
    sw::CollectiveCall call;
    call.count = 1;
    for (auto& slot : slots)
      slot.call = &call;
    for (const auto operation :
         {sw::Operation::broadcast, sw::Operation::all_reduce, sw::Operation::all_gather,
          sw::Operation::reduce_scatter, sw::Operation::all_to_all}) {
      call.operation = operation;
      const std::size_t most = sw::detail::PeerWorkList::most_entries(slots.size());
      sw::detail::PeerWorkList work;
      static_cast<void>(work.build(slots.data(), ranks));
      CHECK(work.entries().size() <= most);
      CHECK((operation != sw::Operation::all_to_all || work.entries().size() == most));
    }
  }
}

TEST_CASE("a long work list is not overwritten before the device has read it", "[comm]") {
  CHECK(on_ranks(8, [](const sw::HostCommunicator& world, Findings& findings) {
          FakePlace place(world, FakeRuntime(11));
          auto in = place.put(std::vector<int>(64));
          std::vector<shardwright_test::FakeBuffer<int>> outs;
          const auto gate = gate_on(place);
          for (int call = 0; call < 6; ++call) {
            in.run([call, rank = world.rank()](std::vector<int>& numbers) {
              for (std::size_t i = 0; i < numbers.size(); ++i)
                numbers[i] = 1000 * call + 100 * rank + static_cast<int>(i / 8);
            });
            outs.push_back(place.put(std::vector<int>(64)));
            place.comm.all_to_all(in, outs.back());
          }
          gate->set();
          for (int call = 0; call < 6; ++call) {
            const std::vector<int> out = place.get(outs[static_cast<std::size_t>(call)]);
            for (std::size_t i = 0; i < out.size(); ++i)
              findings.expect(out[i] == 1000 * call + 100 * static_cast<int>(i / 8) + world.rank(),
                              "all_to_all ", call);
          }
        }) == "");
}

TEST_CASE("the times of a device call are recorded in stream order, with a clock too", "[comm]") {
  for (const bool counted : {false, true})
    CHECK(on_ranks(2, [&](const sw::HostCommunicator& world, Findings& findings) {
            FakePlace place(counted ? sw::timed(world, std::make_shared<sw::CommunicationClock>()) : world,
                            FakeRuntime(12));
            auto data = place.put(Numbers(8, 1));
            sw::CallTimes times;
            sw::CollectiveCall call;
            call.operation = sw::Operation::all_reduce;
            call.element = sw::ElementType::float32;
            call.count = 8;
            call.in = call.out = data.data();
            call.times = &times;
            const auto gate = gate_on(place);
            place.comm.run(call);
            findings.expect(!times.ended(), "times of a call behind a closed gate");
            const auto opened = std::chrono::steady_clock::now();
            gate->set();
            static_cast<void>(place.get(data));
            findings.expect(times.ended() && times.begun_at() >= opened &&
                                times.ended_at() >= times.begun_at(),
                            "a call's times lie behind what its stream held");
          }) == "");
}

TEST_CASE("a clock times the calls of device ranks by the device's clock", "[comm]") {
  const FakeRuntime runtime(12); // one clock for all ranks, which a launch or a copy moves by a second
  CHECK(on_ranks(2, [&](sw::HostCommunicator world, Findings& findings) {
          const auto clock = std::make_shared<sw::CommunicationClock>();
          FakePlace place(sw::timed(world, clock, "dp"), runtime);
          auto data = place.put(Numbers(100, 1));
          const auto since = [&](sw::Operation operation) {
            static_cast<void>(place.get(data)); // the device is done
            static_cast<void>(clock->total());
            return clock->kind("dp", operation).totals;
          };
          clock->restart();
          place.comm.all_reduce_in_place(data);
          const auto blocking = since(sw::Operation::all_reduce);
          findings.expect(blocking.calls == 1 && blocking.bytes == 400 && blocking.seconds == 1,
                          "a launch takes a second, not ", blocking.seconds);
          findings.expect(blocking.exposed_seconds == 1 && blocking.waited_seconds >= 1, "all of it exposed");

          clock->restart();
          sw::Pending pending = place.comm.async().all_reduce_in_place(data);
          findings.expect(comes_true([&] { return pending.ready(); }), "a started call");
          place.runtime.rest(place.stream, 5);
          pending.wait();
          const auto hidden = since(sw::Operation::all_reduce);
          findings.expect(hidden.calls == 1 && hidden.seconds == 1 && hidden.exposed_seconds == 0 &&
                              hidden.hidden_seconds() == 1,
                          "a call that ran beside the stream is hidden, but exposed are ",
                          hidden.exposed_seconds);

          // A rank that waits for another's stream waits, but no data moves.
          clock->restart();
          if (world.rank() == 1)
            place.runtime.rest(place.stream, 7);
          place.comm.all_reduce_in_place(data);
          const auto late = since(sw::Operation::all_reduce);
          findings.expect(late.seconds == 1 && late.exposed_seconds == 1,
                          "a late stream is no communication");

          clock->restart();
          if (world.rank() == 0)
            place.comm.send(data, 1);
          else
            place.comm.receive(data, 0);
          const auto message = since(world.rank() == 0 ? sw::Operation::send : sw::Operation::receive);
          findings.expect(message.calls == 1 && message.bytes == 400 && message.exposed_seconds == 1,
                          "a message");

          clock->restart();
          pending = place.comm.async().all_reduce_in_place(data);
          clock->restart();
          pending.wait();
          findings.expect(since(sw::Operation::all_reduce).calls == 0, "a call before the restart");

          world.barrier(); // counts are those of both
          const long events = runtime.counts().timed_events;
          for (int call = 0; call < 5; ++call) {
            place.comm.all_reduce_in_place(data);
            static_cast<void>(place.get(data));
          }
          clock->count(false);
          place.comm.all_reduce_in_place(data);
          findings.expect(since(sw::Operation::all_reduce).calls == 5, "while it counts");
          world.barrier();
          findings.expect(runtime.counts().timed_events == events, "events are used again");

          FakePlace plain(world, runtime);
          plain.comm.all_reduce_in_place(data);
          static_cast<void>(plain.get(data));
          world.barrier();
          findings.expect(runtime.counts().timed_events == events, "a rank without a clock makes no events");
          clock->count(true);
          try {
            auto wrong = place.put(Numbers(world.rank() == 0 ? 3 : 4));
            place.comm.all_reduce_in_place(wrong);
            findings.expect(false, "a mismatch must be found");
          } catch (const sw::CollectiveMismatch&) {
            findings.expect(since(sw::Operation::all_reduce).calls == 5, "a failed call is not counted");
          }
        }) == "");
}

TEST_CASE("a rank with device calls that throws wakes its peers", "[comm]") {
  std::array<std::exception_ptr, 3> seen;
  const auto run = [&] {
    launch_ranks({.ranks = 3, .deadline = ample}, [&](const sw::HostCommunicator& world) {
      FakePlace place(world, FakeRuntime(1));
      place.comm.barrier();
      if (world.rank() == 1)
        throw std::runtime_error("the disk is full");
      try {
        place.comm.barrier();
      } catch (...) {
        seen[static_cast<std::size_t>(world.rank())] = std::current_exception();
        throw;
      }
    });
  };
  CHECK_THROWS_WITH(run(), ContainsSubstring("the disk is full"));
  for (const std::size_t rank : communicator_suite::Sizes{0, 2})
    CHECK(as<sw::PeerFailed>(seen[rank]).peer() == 1);
}

TEST_CASE("a rank that does not arrive at a device call is named, by run and by a started call", "[comm]") {
  for (const bool started : {false, true}) {
    std::atomic<int> waiting{2};
    const auto errors = rank_outcomes::of(3, brief, [&](const sw::HostCommunicator& world) {
      FakePlace place(world, FakeRuntime(2));
      auto data = place.put(Numbers(8));
      place.comm.barrier();
      if (world.rank() == 1) {
        while (waiting.load() > 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      try {
        if (started)
          place.comm.async().all_reduce_in_place(data).wait();
        else
          place.comm.all_reduce_in_place(data);
      } catch (...) {
        --waiting;
        throw;
      }
    });
    for (const std::size_t rank : communicator_suite::Sizes{0, 2}) {
      const std::string message = text<sw::DeadlineExceeded>(errors[rank]);
      CHECK_THAT(message, ContainsSubstring("all_reduce(sum, 8 float32) #2"));
      CHECK_THAT(message, ContainsSubstring("rank 1: its last operation was barrier #1 on group world at"));
      CHECK(as<sw::DeadlineExceeded>(errors[rank]).missing() == std::vector<int>{1});
    }
  }
}

TEST_CASE("a message in device memory without its other side is named at the deadline", "[comm]") {
  const auto errors = rank_outcomes::of(2, brief, [&](const sw::HostCommunicator& world) {
    FakePlace place(world, FakeRuntime(2));
    auto data = place.put(Numbers(8));
    if (world.rank() == 0)
      place.comm.send(data, 1, 4);
    else
      place.comm.receive(data, 0, 5);
  });
  CHECK_THAT(text<sw::DeadlineExceeded>(errors[0]) + text<sw::DeadlineExceeded>(errors[1]),
             ContainsSubstring("must meet its "));
}

TEST_CASE("device calls that differ are reported on every rank", "[comm]") {
  const auto errors = rank_outcomes::of(3, ample, [&](const sw::HostCommunicator& world) {
    FakePlace place(world, FakeRuntime(3));
    auto data = place.put(Numbers(9));
    if (world.rank() == 1)
      place.comm.all_reduce_in_place(data, sw::ReduceOp::maximum);
    else
      place.comm.async().all_reduce_in_place(data).wait();
  });
  for (const auto& error : errors) {
    CHECK_THAT(text<sw::CollectiveMismatch>(error), ContainsSubstring("the reduce operations differ"));
    CHECK_THAT(text<sw::CollectiveMismatch>(error), ContainsSubstring("ranks 0 and 2 issued all_reduce(sum"));
  }
}

TEST_CASE("both sides of a message in device memory get an error if their counts differ", "[comm]") {
  const auto errors = rank_outcomes::of(2, ample, [&](const sw::HostCommunicator& world) {
    FakePlace place(world, FakeRuntime(3));
    auto data = place.put(Numbers(world.rank() == 0 ? 8 : 9));
    if (world.rank() == 0)
      place.comm.send(data, 1);
    else
      place.comm.receive(data, 0);
  });
  for (const auto& error : errors)
    CHECK_THAT(text<sw::CollectiveMismatch>(error), ContainsSubstring("must agree on the count"));
}

TEST_CASE("overlapping buffers of ranks are rejected, and the group stays usable", "[comm]") {
  std::vector<float> shared(8);
  CHECK(on_ranks(2, [&](const sw::HostCommunicator& world, Findings& findings) {
          FakePlace place(world, FakeRuntime());
          std::string said;
          try {
            place.comm.all_reduce_in_place(std::span<float>(shared));
          } catch (const sw::InvalidArgument& error) {
            said = error.what();
          }
          findings.expect(said.find("overlaps the output of rank") != std::string::npos, said);
          auto data = place.put(Numbers(3, 1));
          place.comm.all_reduce_in_place(data);
          findings.expect(place.get(data) == Numbers(3, 2), "the call after the refused one");
        }) == "");
}

TEST_CASE("a dropped device call fails its group, before and after its peers have arrived", "[comm]") {
  for (const bool complete : {false, true}) {
    std::latch started(2);
    std::atomic<bool> dropped{false};
    const auto errors = rank_outcomes::of(2, ample, [&](const sw::HostCommunicator& world) {
      FakePlace place(world, FakeRuntime(4));
      auto data = place.put(Numbers(700, 1));
      if (complete || world.rank() == 0) {
        sw::Pending pending = place.comm.async().all_reduce_in_place(data);
        if (complete)
          started.arrive_and_wait();
        if (world.rank() == 1)
          pending.wait();
      }
      if (world.rank() == 0)
        dropped.store(true);
      communicator_suite::require(comes_true([&] { return dropped.load(); }),
                                  "the other rank drops its call");
      place.comm.barrier();
    });
    for (const auto& error : errors)
      CHECK_THAT(text<sw::Error>(error), ContainsSubstring("was dropped (keep it, and call wait() once)"));
  }
}

TEST_CASE("handles and buffers may be destroyed while the device is working", "[comm]") {
  CHECK(on_ranks(3, [](const sw::HostCommunicator& world, Findings& findings) {
          std::shared_ptr<FakeSignal> gate;
          {
            FakePlace place(world, FakeRuntime(13));
            gate = gate_on(place);
            auto data = place.put(of_rank(world.rank(), 5000));
            place.comm.all_reduce_in_place(data);
            place.comm.async().barrier().wait();
            gate->set();
          }
          findings.expect(true, "");
        }) == "");
}

TEST_CASE("ranks on several devices get an error when they connect", "[comm]") {
  for (const auto& error : rank_outcomes::of(3, ample, [](const sw::HostCommunicator& world) {
         const FakePlace place(world, FakeRuntime().on(world.rank() == 2 ? 1 : 0));
       }))
    CHECK_THAT(
        text<sw::ConfigurationMismatch>(error),
        ContainsSubstring("must share one device through peer kernels, but ranks 0 and 2 are on different"));
}

TEST_CASE("ranks of several processes get an error when they connect", "[comm]") {
  struct Processes final : sw::detail::DecoratedTransport<sw::HostCommunicator> {
    using DecoratedTransport::DecoratedTransport;
    std::shared_ptr<sw::Transport> around(sw::HostCommunicator part) const override {
      return std::make_shared<Processes>(std::move(part));
    }
    sw::Transport& undecorated() noexcept override { return *this; }
    void run(const sw::CollectiveCall& call) override { below().run(call); }
    sw::Pending start(const sw::CollectiveCall& call) override { return below().start(call); }
  };
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          sw::HostCommunicator processes(std::make_shared<Processes>(world));
          std::string said;
          try {
            const FakePlace place(processes, FakeRuntime());
          } catch (const sw::ConfigurationMismatch& error) {
            said = error.what();
          }
          findings.expect(said.find("must be threads of one process") != std::string::npos, said);
          FakePlace alone(processes.split(world.rank(), 0), FakeRuntime());
          auto data = alone.put(Numbers(5, 2));
          alone.comm.all_reduce_in_place(data);
          findings.expect(alone.comm.world_rank() == world.rank() && alone.get(data) == Numbers(5, 2),
                          "a process by itself");
        }) == "");
}

TEST_CASE("an abort of a device group wakes its peers", "[comm]") {
  const auto errors = rank_outcomes::of(2, ample, [&](const sw::HostCommunicator& world) {
    FakePlace place(world, FakeRuntime(4));
    if (world.rank() == 0)
      place.comm.abort("the loss is not a number");
    else
      place.comm.barrier();
  });
  CHECK_THAT(text<sw::PeerFailed>(errors[1]), ContainsSubstring("called abort: the loss is not a number"));
}

TEST_CASE("a device that fails is a typed error on every rank", "[comm]") {
  FakeRuntime runtime(7);
  const auto errors = rank_outcomes::of(3, ample, [&](sw::HostCommunicator world) {
    FakePlace place(world, runtime);
    auto data = place.put(Numbers(4));
    place.comm.all_reduce_in_place(data);
    world.barrier();
    runtime.fail_launches();
    world.barrier();
    place.comm.all_reduce_in_place(data);
  });
  int launched = 0;
  for (const auto& error : errors) {
    const std::string said = text<sw::Error>(error);
    CHECK_THAT(said, ContainsSubstring("the device fell off the bus"));
    launched += text<sw::TransportError>(error) == said ? 1 : 0;
  }
  CHECK(launched == 1); // the others name the rank whose launch failed
}

TEST_CASE("a failed launch is an error even if the device has recorded the times of its call", "[comm]") {
  FakeRuntime runtime(14);
  const auto errors = rank_outcomes::of(2, ample, [&](sw::HostCommunicator world) {
    FakePlace place(world, runtime);
    auto data = place.put(Numbers(8));
    sw::CallTimes times;
    sw::CollectiveCall call;
    call.operation = sw::Operation::all_reduce;
    call.element = sw::ElementType::float32;
    call.count = 8;
    call.in = call.out = data.data();
    call.times = &times;
    place.comm.all_reduce_in_place(data);
    static_cast<void>(place.get(data));
    world.barrier();
    runtime.fail_launches();
    world.barrier();
    const auto gate = gate_on(place);
    place.stream.run([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
    gate->set();
    try {
      place.comm.run(call);
    } catch (const sw::Error&) {
      communicator_suite::require(times.begun_at() != sw::CallTimes::Clock::time_point{}, "noted times");
      throw;
    }
  });
  for (const auto& error : errors)
    CHECK_THAT(text<sw::Error>(error), ContainsSubstring("the device fell off the bus"));
}
