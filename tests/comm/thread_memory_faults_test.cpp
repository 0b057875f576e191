// SPDX-License-Identifier: Apache-2.0
#include "comm/rank_outcomes.hpp"
#include "support/catch.hpp"
#include "support/heap_count.hpp"
#include "support/launch_ranks.hpp"
#include "support/matchers.hpp"

#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <vector>

namespace sw = shardwright;
using rank_outcomes::ample;
using shardwright_test::ContainsSubstring;
using shardwright_test::HeapFault;

namespace {

constexpr int ranks = 3;

/// A program with groups, on one rank: splits, blocking and started collectives, messages, calls that differ,
/// and a started call that is dropped.
void use_everything(sw::HostCommunicator world) {
  const int next = (world.rank() + 1) % ranks, before = (world.rank() + ranks - 1) % ranks;
  std::vector<float> data(30, 1.0F), part(10), whole(30);
  const sw::ReductionOrder nested{.levels = {{{3, 1}, {1, 3}}}, .count = 2};
  sw::HostCommunicator group = world.split(0, -world.rank(), "a group whose name needs memory");
  sw::HostCommunicator pair = world.split(world.rank() == 1 ? 1 : 0, 0);
  world.all_reduce_in_place(data, sw::ReduceOp::sum, nested);
  {
    sw::Pending first = group.async().all_reduce_in_place(data);
    sw::Pending second = group.async().all_gather(part, whole);
    sw::Pending sent = world.async().send(data, next, 5);
    world.receive(whole, before, 5);
    sent.wait();
    first.wait();
    second.wait();
  }
  pair.barrier();
  world.all_to_all(data, whole);
  const auto differ = [&](sw::HostCommunicator on, bool started) {
    try {
      if (on.rank() == 0)
        on.barrier();
      else if (started)
        on.async().all_reduce_in_place(data).wait();
      else
        on.all_reduce_in_place(data);
    } catch (const sw::CollectiveMismatch&) { // NOLINT(bugprone-empty-catch): as it should be
    }
  };
  differ(world.split(0, 0, "disagrees"), false);
  differ(world.split(0, 0, "disagrees when started"), true);
  try {
    sw::HostCommunicator other = world.split(0, 0, "messages disagree");
    if (world.rank() == 0)
      other.send(data, 1);
    if (world.rank() == 1)
      other.receive(part, 0);
  } catch (const sw::CollectiveMismatch&) { // NOLINT(bugprone-empty-catch): as it should be
  }
  try {
    sw::HostCommunicator other = world.split(0, 0, "drops a call");
    if (world.rank() == 0)
      static_cast<void>(other.async().barrier());
    else
      other.barrier();
  } catch (const sw::PeerFailed& error) {
    if (error.peer() != 0 || std::string(error.what()).find("dropped") == std::string::npos)
      throw;
  }
  world.barrier();
}

/// A run in which one allocation fails.
struct Outcome {
  bool happened = false;    ///< Whether there were that many allocations.
  bool overdue = false;     ///< Whether it ended only at a deadline.
  std::ptrdiff_t leaks = 0; ///< Blocks that are left.
  std::string error{};      ///< The exception of launch(): empty for none, "bad_alloc" for std::bad_alloc.
};

template <class Run> Outcome outcome_of(Run run) {
  Outcome out;
  out.error.reserve(10'000);
  const std::ptrdiff_t before = shardwright_test::heap_blocks();
  try {
    out.happened = run();
  } catch (const std::bad_alloc&) {
    out.happened = true;
    out.error = "bad_alloc";
  } catch (const sw::DeadlineExceeded& error) {
    out.happened = out.overdue = true;
    out.error = error.what();
  } catch (const std::exception& error) {
    out.happened = true;
    out.error = error.what();
    out.overdue = out.error.find("gave up waiting") != std::string::npos;
  }
  out.leaks = shardwright_test::heap_blocks() - before;
  return out;
}

Outcome run_with_fault(int rank, std::size_t which) {
  bool happened = false;
  return outcome_of([&] {
    shardwright_test::launch_thread_ranks({.ranks = ranks, .deadline = ample},
                                          [&](const sw::HostCommunicator& world) {
                                            if (world.rank() != rank)
                                              return use_everything(world);
                                            const HeapFault fault(which, HeapFault::Of::this_thread);
                                            use_everything(world);
                                            happened = fault.happened();
                                          });
    return happened;
  });
}

Outcome run_with_fault_anywhere(std::size_t which) {
  return outcome_of([&] {
    const HeapFault fault(which, HeapFault::Of::any_thread);
    shardwright_test::launch_thread_ranks({.ranks = ranks, .deadline = ample}, use_everything);
    return fault.happened();
  });
}

} // namespace

TEST_CASE("any failed allocation on a rank is that rank's failure and leaves nothing behind", "[comm]") {
  if (!shardwright_test::counts_heap)
    return;
  static_cast<void>(run_with_fault(0, 1U << 30U)); // objects that are made once in a process
  for (int rank = 0; rank < ranks; ++rank) {
    std::size_t which = 1;
    for (bool failed = true; failed; ++which) {
      const Outcome outcome = run_with_fault(rank, which);
      failed = outcome.happened;
      const bool blames = outcome.error.empty() || outcome.error == "bad_alloc" ||
                          outcome.error.find("rank " + std::to_string(rank) + " ") != std::string::npos;
      INFO("allocation " << which << " of rank " << rank << ": " << outcome.error);
      CHECK(blames);
      CHECK_FALSE(outcome.overdue);
      CHECK(outcome.leaks == 0);
      if (!blames || outcome.overdue)
        return;
    }
    CHECK(which > 50); // or the runs would not have used much
  }
}

TEST_CASE("a failed allocation on any thread of a launch ends it in an orderly way", "[comm]") {
  if (!shardwright_test::counts_heap)
    return;
  std::size_t which = 1;
  for (bool failed = true; failed; which += 3) { // ranks run in another order each time
    const Outcome outcome = run_with_fault_anywhere(which);
    failed = outcome.happened;
    INFO("allocation " << which << ": " << outcome.error);
    const bool memory = outcome.error.empty() || outcome.error == "bad_alloc" ||
                        outcome.error.find("bad_alloc") != std::string::npos;
    CHECK(memory);
    CHECK_FALSE(outcome.overdue);
    CHECK(outcome.leaks == 0);
    if (!memory || outcome.overdue)
      return;
  }
  CHECK(which > 150);
}

TEST_CASE("an abort without memory for its message still ends the world", "[comm]") {
  if (!shardwright_test::counts_heap)
    return;
  const std::string reason = "a reason of more letters than a string holds by itself";
  std::size_t which = 1;
  for (bool failed = true; failed; ++which) {
    failed = false;
    const auto outcomes = rank_outcomes::of(2, ample, [&](sw::HostCommunicator world) {
      if (world.rank() == 1)
        return world.barrier();
      const HeapFault fault(which, HeapFault::Of::this_thread);
      try {
        world.abort(reason);
      } catch (const std::bad_alloc&) {
        failed = true;
      }
    });
    INFO("allocation " << which);
    CHECK_THAT(
        rank_outcomes::text<sw::PeerFailed>(outcomes[1]),
        ContainsSubstring(failed ? "rank 0 failed: it ran out of memory" : "rank 0 called abort: a reason"));
  }
  CHECK(which > 3);
}
