// SPDX-License-Identifier: Apache-2.0
#include "comm/rank_outcomes.hpp"
#include "support/catch.hpp"
#include "support/launch_ranks.hpp"
#include "support/matchers.hpp"
#include "support/standard_error.hpp"

#include <shardwright/comm/cores.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <complex>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>

namespace sw = shardwright;
using rank_outcomes::ample;
using rank_outcomes::as;
using rank_outcomes::brief;
using rank_outcomes::text;
using shardwright_test::ContainsSubstring;
using shardwright_test::launch_ranks;

namespace {

using Program = std::function<void(sw::HostCommunicator)>;

/// One rank takes one path, the others another; all must learn of it.
void expect_mismatch(const Program& odd, const Program& others, const std::string& difference,
                     const std::string& odd_call, const std::string& other_call) {
  const auto errors = rank_outcomes::of(3, ample, [&](sw::HostCommunicator world) {
    world.barrier();
    (world.rank() == 1 ? odd : others)(world);
  });
  for (const auto& error : errors) {
    const std::string message = text<sw::CollectiveMismatch>(error);
    CHECK_THAT(message, ContainsSubstring(difference));
    CHECK_THAT(message, ContainsSubstring("rank 1 issued " + odd_call));
    CHECK_THAT(message, ContainsSubstring("ranks 0 and 2 issued " + other_call));
    CHECK_THAT(message, ContainsSubstring(" #2 at "));
    CHECK_THAT(message, ContainsSubstring("thread_faults_test.cpp:"));
  }
}

} // namespace

TEST_CASE("a rank that throws wakes its peers, and launch throws its error", "[comm]") {
  std::array<std::exception_ptr, 3> seen;
  const auto run = [&] {
    launch_ranks({.ranks = 3, .deadline = ample}, [&](sw::HostCommunicator world) {
      world.barrier();
      if (world.rank() == 1)
        throw std::runtime_error("the disk is full");
      try {
        world.barrier();
      } catch (...) {
        seen[static_cast<std::size_t>(world.rank())] = std::current_exception();
        throw;
      }
    });
  };
  CHECK_THROWS_WITH(run(), ContainsSubstring("the disk is full"));
  for (const int rank : {0, 2}) {
    CHECK_THAT(text<sw::PeerFailed>(seen[static_cast<std::size_t>(rank)]),
               ContainsSubstring("rank 1 failed: the disk is full"));
    CHECK(as<sw::PeerFailed>(seen[static_cast<std::size_t>(rank)]).peer() == 1);
  }
}

TEST_CASE("a rank that returns early fails its peers", "[comm]") {
  std::string message;
  try {
    launch_ranks({.ranks = 3, .deadline = ample}, [](sw::HostCommunicator world) {
      if (world.rank() != 2)
        world.barrier();
    });
  } catch (const sw::PeerFailed& error) {
    message = error.what();
    CHECK(error.peer() == 2);
  }
  CHECK_THAT(message, ContainsSubstring("rank 2 left: its program returned"));
}

TEST_CASE("the other ranks continue to exchange messages when a rank has returned", "[comm]") {
  CHECK_NOTHROW(launch_ranks({.ranks = 3, .deadline = ample}, [](sw::HostCommunicator world) {
    std::vector<int> value{world.rank()};
    if (world.rank() == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    if (world.rank() == 0)
      world.send(value, 1);
    if (world.rank() == 1)
      world.receive(value, 0);
  }));
}

TEST_CASE("a message names its own peer, not a rank that has legitimately left before", "[comm]") {
  std::exception_ptr error;
  CHECK_THROWS_AS(launch_ranks({.ranks = 3, .deadline = ample},
                               [&](sw::HostCommunicator world) {
                                 std::vector<int> value{world.rank()};
                                 if (world.rank() == 2)
                                   return; // no rank needs it
                                 if (world.rank() == 1) {
                                   std::this_thread::sleep_for(std::chrono::milliseconds(30));
                                   return;
                                 }
                                 try {
                                   world.receive(value, 1);
                                 } catch (...) {
                                   error = std::current_exception();
                                   throw;
                                 }
                               }),
                  sw::PeerFailed);
  CHECK(as<sw::PeerFailed>(error).peer() == 1);
  CHECK_THAT(text<sw::PeerFailed>(error), ContainsSubstring("rank 1 left: its program returned"));
}

TEST_CASE("a frozen rank is named with its last operation", "[comm]") {
  const bool first = GENERATE(false, true); // of its group's calls
  std::atomic<int> waiting{2};
  const auto errors = rank_outcomes::of(3, brief, [&](sw::HostCommunicator world) {
    if (!first)
      world.barrier();
    if (world.rank() == 1) {
      while (waiting.load() > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    std::vector<float> data(8);
    try {
      world.all_reduce_in_place(data);
    } catch (...) {
      --waiting;
      throw;
    }
  });
  for (const int rank : {0, 2}) {
    const std::string message = text<sw::DeadlineExceeded>(errors[static_cast<std::size_t>(rank)]);
    CHECK_THAT(message,
               ContainsSubstring(first ? "all_reduce(sum, 8 float32) #1" : "all_reduce(sum, 8 float32) #2"));
    CHECK_THAT(message, ContainsSubstring("within 0.4 s"));
    CHECK_THAT(message,
               ContainsSubstring(first ? "rank 1: it has called no operation yet"
                                       : "rank 1: its last operation was barrier #1 on group world at"));
    CHECK(as<sw::DeadlineExceeded>(errors[static_cast<std::size_t>(rank)]).missing() == std::vector<int>{1});
  }
}

TEST_CASE("the longest possible deadline never passes", "[comm]") {
  const std::chrono::nanoseconds notice = GENERATE(std::chrono::nanoseconds(0), std::chrono::milliseconds(5));
  const shardwright_test::StandardError captured;
  CHECK_NOTHROW(launch_ranks({.ranks = 2, .deadline = std::chrono::nanoseconds::max(), .notice = notice},
                             [](sw::HostCommunicator world) {
                               if (world.rank() == 1) // meanwhile the other rank falls asleep
                                 std::this_thread::sleep_for(std::chrono::milliseconds(50));
                               world.barrier();
                             }));
}

TEST_CASE("a slow rank within the deadline gives the right result", "[comm]") {
  CHECK_NOTHROW(launch_ranks({.ranks = 3, .deadline = ample}, [](sw::HostCommunicator world) {
    std::vector<double> data{1.0 + world.rank()};
    if (world.rank() == 2)
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
    world.all_reduce_in_place(data);
    if (data[0] != 6.0)
      throw std::runtime_error("wrong sum");
  }));
}

TEST_CASE("different collectives on different ranks are listed side by side", "[comm]") {
  const auto sum = [](sw::HostCommunicator world) {
    std::vector<float> data(8);
    world.all_reduce_in_place(data);
  };
  const Program barrier = [](sw::HostCommunicator world) { world.barrier(); };
  expect_mismatch(barrier, sum, "the operations differ", "barrier()", "all_reduce(sum, 8 float32)");
  expect_mismatch(
      [](sw::HostCommunicator world) {
        std::vector<int> data(8);
        world.all_reduce_in_place(data);
      },
      sum, "the element types differ", "all_reduce(sum, 8 int32)", "all_reduce(sum, 8 float32)");
  expect_mismatch(
      [](sw::HostCommunicator world) {
        std::vector<float> data(8);
        world.all_reduce_in_place(data, sw::ReduceOp::maximum);
      },
      sum, "the reduce operations differ", "all_reduce(maximum, 8 float32)", "all_reduce(sum, 8 float32)");
  const auto from = [](int root) {
    return [root](sw::HostCommunicator world) {
      std::vector<float> data(8);
      world.broadcast(data, root);
    };
  };
  expect_mismatch(from(2), from(0), "the roots differ", "broadcast(8 float32, root 2)",
                  "broadcast(8 float32, root 0)");
}

TEST_CASE("a count that differs is found before any data moves", "[comm]") {
  std::array<std::vector<float>, 3> buffers;
  const auto errors = rank_outcomes::of(3, ample, [&](sw::HostCommunicator world) {
    std::vector<float>& data = buffers[static_cast<std::size_t>(world.rank())];
    data.assign(world.rank() == 2 ? 9 : 10, static_cast<float>(world.rank()) + 1);
    world.all_reduce_in_place(data);
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK_THAT(text<sw::CollectiveMismatch>(errors[rank]), ContainsSubstring("the counts differ"));
    CHECK_THAT(text<sw::CollectiveMismatch>(errors[rank]),
               ContainsSubstring("ranks 0 and 1 issued all_reduce(sum, 10 float32)"));
    CHECK(buffers[rank] == std::vector<float>(rank == 2 ? 9 : 10, static_cast<float>(rank) + 1));
  }
}

TEST_CASE("block counts that differ are named", "[comm]") {
  const auto gather = rank_outcomes::of(2, ample, [](sw::HostCommunicator world) {
    const std::vector<std::size_t> counts =
        world.rank() == 0 ? std::vector<std::size_t>{2, 3} : std::vector<std::size_t>{1, 3};
    std::vector<float> in(counts[static_cast<std::size_t>(world.rank())]), out(counts[0] + counts[1]);
    world.all_gather(in, out, counts);
  });
  const auto exchange = rank_outcomes::of(2, ample, [](sw::HostCommunicator world) {
    const std::vector<std::size_t> sends =
        world.rank() == 0 ? std::vector<std::size_t>{2, 3} : std::vector<std::size_t>{1, 3};
    const std::vector<std::size_t> receives =
        world.rank() == 0 ? std::vector<std::size_t>{2, 1} : std::vector<std::size_t>{4, 3};
    std::vector<float> in(sends[0] + sends[1]), out(receives[0] + receives[1]);
    world.all_to_all(in, out, sends, receives);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK_THAT(text<sw::CollectiveMismatch>(gather[rank]),
               ContainsSubstring("the counts of block 0 differ (2 and 1)"));
    CHECK_THAT(text<sw::CollectiveMismatch>(exchange[rank]),
               ContainsSubstring("rank 0 sends 3 elements to rank 1, which expects 4"));
  }
}

TEST_CASE("reduction orders that differ are a mismatch", "[comm]") {
  const auto errors = rank_outcomes::of(4, ample, [](sw::HostCommunicator world) {
    sw::ReductionOrder order;
    order.count = 2;
    order.levels[0] = {2, world.rank() == 3 ? 2 : 1};
    order.levels[1] = {2, world.rank() == 3 ? 1 : 2};
    std::vector<float> data(8);
    world.all_reduce_in_place(data, sw::ReduceOp::sum, order);
  });
  for (const auto& error : errors)
    CHECK_THAT(text<sw::CollectiveMismatch>(error), ContainsSubstring("the reduction orders differ"));
}

TEST_CASE("a long wait is reported with the awaited ranks, in one line for the group", "[comm]") {
  const bool message = GENERATE(false, true);
  std::string told;
  {
    const shardwright_test::StandardError standard_error;
    const auto ended = std::chrono::steady_clock::now() + ample;
    std::latch met(3); // so that the only rank to wait for is the one that holds back
    launch_ranks({.ranks = 3, .deadline = ample, .notice = std::chrono::milliseconds(200)},
                 [&](sw::HostCommunicator world) {
                   float data = 1;
                   const std::span<float> one(&data, 1);
                   met.arrive_and_wait();
                   if (world.rank() == 2)
                     while (standard_error.text().find('\n') == std::string::npos &&
                            std::chrono::steady_clock::now() < ended)
                       std::this_thread::sleep_for(std::chrono::milliseconds(1));
                   if (!message)
                     world.barrier();
                   else if (world.rank() == 0)
                     world.receive(one, 2, 4);
                   else if (world.rank() == 2)
                     world.send(one, 0, 4);
                 });
    told = standard_error.text();
  }
  CHECK_THAT(told, ContainsSubstring(" has waited 0.2 s for rank 2 in "));
  CHECK_THAT(told, ContainsSubstring(message ? "receive(1 float32, from rank 2, tag 4) #1 at "
                                             : "barrier() #1 at "));
  CHECK_THAT(told, ContainsSubstring("thread_faults_test.cpp:"));
  CHECK_THAT(told, ContainsSubstring(" on group world; rank 2: it has called no operation yet"));
  CHECK(std::count(told.begin(), told.end(), '\n') == 1);
}

TEST_CASE("two groups entered in opposite order: the report shows who waits where", "[comm]") {
  std::string message;
  try {
    launch_ranks({.ranks = 2, .deadline = brief}, [](sw::HostCommunicator world) {
      sw::HostCommunicator rows = world.split(0, world.rank(), "rows");
      sw::HostCommunicator columns = world.split(0, world.rank(), "columns");
      (world.rank() == 0 ? rows : columns).barrier();
      (world.rank() == 0 ? columns : rows).barrier();
    });
  } catch (const sw::DeadlineExceeded& error) {
    message = error.what();
  }
  CHECK_THAT(message, ContainsSubstring("they wait in a cycle: rank"));
  CHECK_THAT(message, ContainsSubstring("waiting in barrier #1 on group rows"));
  CHECK_THAT(message, ContainsSubstring("waiting in barrier #1 on group columns"));
}

TEST_CASE("a thread rank that waits, or has given up, is not blamed for one that does not arrive", "[comm]") {
  const bool first_gives_up_first = GENERATE(true, false);
  std::atomic<int> done{0};
  const auto outcomes = rank_outcomes::of(3, brief, [&](sw::HostCommunicator world) {
    struct Done {
      std::atomic<int>& count;
      ~Done() { ++count; }
    };
    sw::HostCommunicator tail = world.split(world.rank() == 0 ? 0 : 1, world.rank(), "tail");
    if (world.rank() == 2) { // stays away from the barrier of rank 1, for which rank 0 waits
      while (done != 2)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    const Done counted{done};
    if ((world.rank() == 0) != first_gives_up_first)
      std::this_thread::sleep_for(brief / 3);
    std::vector<float> data(4);
    if (world.rank() == 0)
      world.receive(data, 1);
    else
      tail.barrier();
  });
  for (const int rank : {0, 1}) {
    CAPTURE(rank, rank_outcomes::text<sw::DeadlineExceeded>(outcomes[static_cast<std::size_t>(rank)]));
    REQUIRE_NOTHROW(rank_outcomes::as<sw::DeadlineExceeded>(outcomes[static_cast<std::size_t>(rank)]));
    CHECK(rank_outcomes::as<sw::DeadlineExceeded>(outcomes[static_cast<std::size_t>(rank)]).missing() ==
          std::vector<int>{2});
  }
}

TEST_CASE("a long wait names the ranks in ascending order, whatever their order in the group", "[comm]") {
  std::string told;
  {
    const shardwright_test::StandardError standard_error;
    const auto ended = std::chrono::steady_clock::now() + ample;
    launch_ranks({.ranks = 3, .deadline = ample, .notice = std::chrono::milliseconds(200)},
                 [&](sw::HostCommunicator world) {
                   sw::HostCommunicator reversed = world.split(0, -world.rank(), "reversed");
                   if (world.rank() != 0)
                     while (standard_error.text().find('\n') == std::string::npos &&
                            std::chrono::steady_clock::now() < ended)
                       std::this_thread::sleep_for(std::chrono::milliseconds(1));
                   reversed.barrier();
                 });
    told = standard_error.text();
  }
  CHECK_THAT(told, ContainsSubstring("rank 0 has waited 0.2 s for ranks 1 and 2 in barrier() #1 at "));
}

TEST_CASE("a rank that computes while its own call is in progress is not part of a cycle", "[comm]") {
  const bool collective = GENERATE(false, true);
  std::string message;
  std::atomic<bool> told{false};
  CHECK_THROWS_AS(launch_ranks({.ranks = 2, .deadline = collective ? 2 * brief : brief},
                               [&](sw::HostCommunicator world) {
                                 std::vector<float> data(4);
                                 sw::HostCommunicator other = world.split(0, world.rank(), "other");
                                 if (world.rank() == 1) {
                                   try {
                                     world.receive(data, 0, 2);
                                   } catch (const sw::Error& error) {
                                     message = error.what();
                                     told = true;
                                     throw;
                                   }
                                   return;
                                 }
                                 if (collective) // its own deadline begins later
                                   std::this_thread::sleep_for(brief);
                                 sw::Pending pending =
                                     collective ? other.async().barrier() : other.async().receive(data, 1, 1);
                                 while (!told)
                                   std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                 pending.wait();
                               }),
                  sw::Error);
  CHECK_THAT(message,
             ContainsSubstring(collective ? "rank 0: computing, with barrier #1 on group other at "
                                          : "rank 0: computing, with receive from rank 1 under tag 1"));
  CHECK_THAT(message, ContainsSubstring(" started"));
  CHECK(message.find("cycle") == std::string::npos);
}

TEST_CASE("thread ranks that wait for one another in a ring do not wait for the deadline", "[comm]") {
  const bool message = GENERATE(false, true);
  std::string told;
  const shardwright_test::StandardError standard_error;
  // One rank makes a call that the others do not make.
  CHECK_THROWS_AS(launch_ranks({.ranks = 3, .deadline = ample, .notice = std::chrono::milliseconds(50)},
                               [&](sw::HostCommunicator world) {
                                 sw::HostCommunicator other = world.split(0, world.rank(), "other");
                                 std::vector<float> data(4);
                                 try {
                                   if (world.rank() != 1)
                                     world.barrier();
                                   else if (message)
                                     world.receive(data, 0, 3);
                                   else
                                     other.all_reduce_in_place(data);
                                 } catch (const sw::DeadlineExceeded& error) {
                                   if (world.rank() == 1)
                                     told = error.what();
                                   throw;
                                 } catch (const sw::PeerFailed& error) {
                                   if (world.rank() == 1)
                                     told = error.what();
                                   throw;
                                 }
                               }),
                  sw::DeadlineExceeded);
  CHECK_THAT(told, ContainsSubstring("they wait in a cycle: rank "));
  CHECK_THAT(told, ContainsSubstring("waiting in barrier #2 on group world"));
  CHECK_THAT(told, !ContainsSubstring("within"));
}

TEST_CASE("a rank that waits for a call that it has started is part of a cycle", "[comm]") {
  const bool collective = GENERATE(false, true);
  std::string message;
  try {
    launch_ranks({.ranks = 2, .deadline = brief}, [&](sw::HostCommunicator world) {
      std::vector<float> data(4);
      if (world.rank() == 1)
        world.receive(data, 0, 2);
      else if (collective)
        world.async().barrier().wait();
      else
        world.async().receive(data, 1, 1).wait();
    });
  } catch (const sw::Error& error) {
    message = error.what();
  }
  CHECK_THAT(message, ContainsSubstring("they wait in a cycle: rank"));
}

TEST_CASE("invalid arguments are rejected on the rank that passes them", "[comm]") {
  launch_ranks({.ranks = 1}, [](sw::HostCommunicator world) {
    std::vector<float> data(8), small(7);
    CHECK_THROWS_WITH(world.broadcast(data, 1),
                      ContainsSubstring("the root must be at least 0 and below 1, but it is 1"));
    CHECK_THROWS_WITH(world.broadcast(data, -1), ContainsSubstring("but it is -1"));
    CHECK_THROWS_WITH(world.all_reduce(data, small),
                      ContainsSubstring("the output must hold 8 elements, but it holds 7"));
    CHECK_THROWS_WITH(world.all_gather(data, small), ContainsSubstring("the output must hold 8 elements"));
    CHECK_THROWS_WITH(world.reduce_scatter(small, data), ContainsSubstring("the input must hold 8 elements"));
    CHECK_THROWS_WITH(world.send(data, 0), ContainsSubstring("the peer must be another rank"));
    CHECK_THROWS_WITH(world.all_reduce_in_place(std::span<float>(static_cast<float*>(nullptr), 4)),
                      ContainsSubstring("must not be null for 4 elements"));
    const std::span<float> all(data);
    CHECK_THROWS_WITH(world.all_reduce(all.subspan(0, 7), all.subspan(1, 7)),
                      ContainsSubstring("must not overlap"));
    CHECK_THROWS_WITH(world.all_to_all(data, data), ContainsSubstring("must not overlap"));
    CHECK_NOTHROW(world.all_gather(data, data));
    CHECK_NOTHROW(world.all_reduce_in_place(data));
    sw::ReductionOrder order;
    order.count = 1;
    order.levels[0] = {2, 1};
    CHECK_THROWS_WITH(world.all_reduce_in_place(data, sw::ReduceOp::sum, order),
                      ContainsSubstring("must visit each of the 1 ranks once"));
    std::vector<std::complex<float>> complex(4);
    CHECK_THROWS_WITH(world.all_reduce_in_place(complex, sw::ReduceOp::maximum),
                      ContainsSubstring("a reduction of complex64 must be a sum or an average, but it is a "
                                        "maximum (complex numbers have no order;"));
    const std::vector<sw::StridedBlock> outside{{4, 2, 2, 4}};
    CHECK_THROWS_WITH(
        world.all_gather(std::span<float>(small).subspan(0, 4), data, outside),
        ContainsSubstring("block 0 of the output must end inside the buffer, but it ends at 10 of 8"));
  });
}

TEST_CASE("buffers that ranks share by mistake are detected", "[comm]") {
  std::vector<float> shared(16);
  const auto errors = rank_outcomes::of(2, ample, [&](sw::HostCommunicator world) {
    std::vector<float> in(8);
    world.all_gather(in, shared);
  });
  for (const auto& error : errors)
    CHECK_THAT(text<sw::InvalidArgument>(error),
               ContainsSubstring("the output of rank 0 overlaps the output of rank 1"));
  CHECK_NOTHROW(launch_ranks({.ranks = 2, .deadline = ample}, [&](sw::HostCommunicator world) {
    std::vector<float> out(16);
    world.all_reduce(shared, out); // Reading one buffer on all ranks is allowed.
  }));
}

TEST_CASE("calls with nothing to send succeed", "[comm]") {
  for (const int ranks : {1, 2})
    CHECK_NOTHROW(launch_ranks({.ranks = ranks, .deadline = ample}, [](sw::HostCommunicator world) {
      std::vector<float> none;
      world.all_reduce_in_place(none);
      world.all_gather(none, none);
      world.reduce_scatter(none, none);
      world.all_to_all(none, none);
      world.broadcast(none, 0);
      if (world.size() == 2 && world.rank() == 0)
        world.send(none, 1);
      if (world.rank() == 1)
        world.receive(none, 0);
    }));
}

TEST_CASE("a send without a receive, and a tag that nobody sends", "[comm]") {
  const auto lonely = rank_outcomes::of(2, brief, [](sw::HostCommunicator world) {
    std::vector<float> data(4);
    if (world.rank() == 0)
      world.send(data, 1, 7);
  });
  CHECK_THAT(text<sw::DeadlineExceeded>(lonely[0]),
             ContainsSubstring("send(4 float32, to rank 1, tag 7) #1"));
  CHECK_THAT(text<sw::DeadlineExceeded>(lonely[0]),
             ContainsSubstring("must meet its receive within 0.4 s, but there is none"));
  const auto tags = rank_outcomes::of(2, brief, [](sw::HostCommunicator world) {
    std::vector<float> data(4);
    if (world.rank() == 0) {
      world.send(data, 1, 7);
    } else {
      // Later, so that it still waits when the send gives up.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      world.receive(data, 0, 8);
    }
  });
  bool shown = false;
  for (const auto& error : tags) {
    const std::string message = text<sw::Error>(error);
    CHECK_THAT(message, ContainsSubstring("tag 7"));
    CHECK_THAT(message, ContainsSubstring("tag 8"));
    shown = shown || message.find("the other side has only") != std::string::npos;
  }
  CHECK(shown);
}

TEST_CASE("both sides of a message that disagree get an error", "[comm]") {
  const auto errors = rank_outcomes::of(2, ample, [](sw::HostCommunicator world) {
    std::vector<float> four(4), five(5);
    if (world.rank() == 0)
      world.send(four, 1);
    else
      world.receive(five, 0);
  });
  for (const auto& error : errors)
    CHECK_THAT(
        text<sw::CollectiveMismatch>(error),
        ContainsSubstring("must agree on the count, but rank 0 issued send(4 float32, to rank 1, tag 0)"));
}

TEST_CASE("a dropped Pending fails the group instead of hanging it", "[comm]") {
  const auto errors = rank_outcomes::of(2, ample, [](sw::HostCommunicator world) {
    std::vector<float> data(4);
    if (world.rank() == 0) {
      static_cast<void>(world.async().all_reduce_in_place(data));
      world.barrier();
    } else {
      world.barrier();
      world.barrier();
    }
  });
  CHECK_THAT(text<sw::LifecycleError>(errors[0]),
             ContainsSubstring("a communicator must not be used after it has failed"));
  const std::string message = text<sw::Error>(errors[1]);
  const bool told = message.find("Pending: a started call must be waited for") != std::string::npos ||
                    message.find("must issue the same call") != std::string::npos;
  CHECK(told);
}

TEST_CASE("a Pending that an exception drops does not hide the exception", "[comm]") {
  std::string peer;
  const auto run = [&] {
    launch_ranks({.ranks = 2, .deadline = ample}, [&](sw::HostCommunicator world) {
      std::vector<float> data(4);
      if (world.rank() == 0) {
        sw::Pending pending = world.async().all_reduce_in_place(data);
        throw std::runtime_error("the real cause");
      }
      try {
        world.async().barrier().wait();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        world.barrier();
      } catch (const sw::Error& error) {
        peer = error.what();
        throw;
      }
    });
  };
  std::string message;
  try {
    run();
  } catch (const std::exception& error) {
    message = error.what();
  }
  const bool real =
      message == "the real cause" || message.find("must issue the same call") != std::string::npos;
  INFO(message);
  CHECK(real);
  CHECK_FALSE(peer.empty());
}

TEST_CASE("a Pending must be waited for exactly once", "[comm]") {
  launch_ranks({.ranks = 1}, [](sw::HostCommunicator world) {
    sw::Pending pending = world.async().barrier();
    CHECK(pending.ready());
    pending.wait();
    CHECK_THROWS_WITH(pending.wait(), ContainsSubstring("Pending: wait() was called twice"));
    sw::Pending moved;
    CHECK_THROWS_AS(moved.wait(), sw::LifecycleError);
  });
}

TEST_CASE("communicators outside their lifetime are rejected", "[comm]") {
  sw::HostCommunicator kept;
  CHECK_THROWS_WITH(kept.barrier(), ContainsSubstring("the handle must have a group"));
  launch_ranks({.ranks = 2}, [&](sw::HostCommunicator world) {
    world.barrier();
    if (world.rank() == 0)
      kept = world;
  });
  CHECK_THROWS_AS(kept.barrier(), sw::LifecycleError);
  CHECK_THROWS_WITH(kept.barrier(), ContainsSubstring("must not be used after"));
}

TEST_CASE("abort wakes everyone, and the communicator cannot be used any more", "[comm]") {
  const auto errors = rank_outcomes::of(3, ample, [](sw::HostCommunicator world) {
    sw::HostCommunicator pair = world.split(world.rank() == 2 ? 1 : 0, 0, "pair");
    if (world.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      world.abort("no more data");
      bool refused = false;
      try {
        world.barrier();
      } catch (const sw::LifecycleError&) {
        refused = true;
      }
      if (refused)
        throw std::runtime_error("rank 2 is done");
    }
    std::vector<float> data(1);
    if (world.rank() == 0)
      world.barrier();
    else
      pair.receive(data, 0);
  });
  for (const int rank : {0, 1}) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    CHECK_THAT(text<sw::PeerFailed>(error), ContainsSubstring("rank 2 called abort: no more data"));
    CHECK(as<sw::PeerFailed>(error).peer() == 2);
  }
}

TEST_CASE("an abort that races a collective wakes every waiter", "[comm]") {
  for (int round = 0; round < 30; ++round) {
    const auto errors = rank_outcomes::of(3, ample, [round](sw::HostCommunicator world) {
      std::vector<float> data(300);
      for (int i = 0;; ++i) {
        if (world.rank() == round % 3 && i == round * 3)
          world.abort("enough");
        if (i % 3 == 0)
          world.async().all_reduce_in_place(data).wait();
        else
          world.all_reduce_in_place(data);
      }
    });
    for (int rank = 0; rank < 3; ++rank) {
      const auto& error = errors[static_cast<std::size_t>(rank)];
      if (rank == round % 3)
        CHECK_THAT(text<sw::LifecycleError>(error), ContainsSubstring("enough"));
      else
        CHECK_THAT(text<sw::PeerFailed>(error), ContainsSubstring("enough"));
    }
  }
}

TEST_CASE("if a deadline races its collective, all ranks reach the same outcome", "[comm]") {
  for (int round = 0; round < 20; ++round) {
    const auto errors = rank_outcomes::of(3, std::chrono::milliseconds(10), [](sw::HostCommunicator world) {
      std::vector<float> data(64);
      if (world.rank() == 1)
        std::this_thread::sleep_for(std::chrono::microseconds(9900));
      world.all_reduce_in_place(data);
    });
    int thrown = 0;
    for (const auto& error : errors)
      thrown += error ? 1 : 0;
    CHECK((thrown == 0 || thrown == 3));
  }
}

TEST_CASE("one rank's collectives must come from one thread at a time", "[comm]") {
  std::atomic<int> refused{0};
  const auto errors = rank_outcomes::of(2, brief, [&](sw::HostCommunicator world) {
    if (world.rank() == 1)
      return;
    std::thread second([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      try {
        world.barrier();
      } catch (const sw::LifecycleError&) {
        ++refused;
      } catch (const sw::Error&) {
      }
    });
    try {
      world.barrier();
    } catch (...) {
      second.join();
      throw;
    }
    second.join();
  });
  CHECK(refused.load() == 1);
  CHECK_THAT(text<sw::DeadlineExceeded>(errors[0]), ContainsSubstring("it has called no operation yet"));
}

TEST_CASE("a rank that throws among started calls is the only cause that the others report", "[comm]") {
  // More ranks than cores, so that ranks do parts of one another's work and some are slow to compare their
  // calls.
  const int ranks = std::max(6, 2 * sw::detail::usable_cores());
  std::mt19937 random(11);
  std::atomic<int> mismatches{0};
  for (int round = 0; round < 1500; ++round) {
    const int thrower = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const std::size_t calls = 4 + random() % 6;
    const std::size_t last = 1 + random() % (calls - 1);
    const auto run = [&] {
      launch_ranks({.ranks = ranks, .deadline = ample, .check = true}, [&](sw::HostCommunicator world) {
        std::vector<std::vector<float>> data(calls, std::vector<float>(16, 1));
        try {
          std::vector<sw::Pending> pending;
          for (std::size_t i = 0; i < calls; ++i) {
            if (world.rank() == thrower && i == last)
              throw std::runtime_error("the disk is full");
            pending.push_back(world.async().all_reduce_in_place(data[i]));
          }
          for (sw::Pending& each : pending)
            each.wait();
        } catch (const sw::CollectiveMismatch&) {
          ++mismatches;
          throw;
        }
      });
    };
    CHECK_THROWS_WITH(run(), ContainsSubstring("the disk is full"));
  }
  CHECK(mismatches.load() == 0);
}
