// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/report.hpp>
#include <shardwright/comm/wait_graph.hpp>

#include <array>
#include <chrono>
#include <string>
#include <vector>

namespace sw = shardwright;
namespace detail = shardwright::detail;

namespace {

sw::CollectiveCall sum_of(std::size_t count) {
  sw::CollectiveCall call;
  call.operation = sw::Operation::all_reduce;
  call.element = sw::ElementType::float32;
  call.count = count;
  return call;
}

std::string doing(int rank) { return "at step " + std::to_string(10 * rank); }

} // namespace

TEST_CASE("ranks with one call are named together, in the order of the first of each", "[comm]") {
  CHECK(detail::issued_text({{4, "a"}, {5, "b"}, {6, "a"}, {7, "c"}, {8, "b"}}) ==
        "ranks 4 and 6 issued a; ranks 5 and 8 issued b; rank 7 issued c");
  CHECK(detail::issued_text({}).empty());
}

TEST_CASE("a mismatch report says what differs, if that is known", "[comm]") {
  const std::vector<detail::IssuedCall> calls{{0, "a"}, {1, "b"}};
  CHECK(
      detail::mismatch_sentence("dp", "the counts differ", calls) ==
      "all ranks of group dp must issue the same call, but the counts differ: rank 0 issued a; rank 1 issued b (let every rank take the same path to this call)");
  CHECK(
      detail::mismatch_sentence("dp", "", calls) ==
      "all ranks of group dp must issue the same call with blocks that match, but rank 0 issued a; rank 1 issued b (let every rank take the same path to this call)");
}

TEST_CASE("the first difference of the calls, or blocks that do not pair up, by world ranks", "[comm]") {
  std::vector<sw::CollectiveCall> calls{sum_of(4), sum_of(4), sum_of(5)};
  const auto call_of = [&](int rank) -> const sw::CollectiveCall& {
    return calls[static_cast<std::size_t>(rank)];
  };
  const auto world_rank = [](int rank) { return rank + 10; };
  CHECK(detail::difference_of(3, call_of, world_rank) == "the counts differ");
  CHECK(detail::difference_of(2, call_of, world_rank).empty());

  const std::array<sw::StridedBlock, 2> even{sw::contiguous_block(0, 2), sw::contiguous_block(2, 2)};
  const std::array<sw::StridedBlock, 2> odd{sw::contiguous_block(0, 2), sw::contiguous_block(2, 3)};
  calls.resize(2);
  for (sw::CollectiveCall& call : calls) {
    call.operation = sw::Operation::all_to_all;
    call.in_blocks = call.out_blocks = even;
  }
  CHECK(detail::difference_of(2, call_of, world_rank).empty());
  calls[0].in_blocks = odd;
  CHECK(detail::difference_of(2, call_of, world_rank) ==
        "rank 10 sends 3 elements to rank 11, which expects 2");
}

TEST_CASE("a deadline report names the late ranks, what they do, and a cycle", "[comm]") {
  using namespace std::chrono_literals;
  const auto said = [](const detail::HoldUp& hold_up, std::chrono::nanoseconds deadline = 2s) {
    return detail::late_sentence("tp", sum_of(4), 7, deadline, {2, 3}, hold_up, {}, doing);
  };
  const std::string enter = "every rank of group tp must enter all_reduce(sum, 4 float32) #7";
  const std::string advice =
      " (let all ranks issue the same calls in the same order, or raise LaunchOptions::deadline)";
  CHECK(said({{2, 3}}) ==
        enter + " within 2 s, but ranks 2 and 3 did not arrive: rank 2: at step 20; rank 3: at step 30" +
            advice);
  CHECK(
      said({{2}, {}, {2, 0}}, 0s) ==
      enter +
          ", but rank 2 did not arrive: they wait in a cycle: rank 2 -> rank 0 -> rank 2 (rank 2: at step 20; rank 0: at step 0)" +
          advice);
  CHECK(
      said({{4}, {3}}) ==
      enter +
          " within 2 s, but not all arrived, held up by rank 4: rank 4: at step 40; held up by it: rank 3: at step 30" +
          advice);
  CHECK(said({}) == enter + " within 2 s, but not all arrived" + advice);
}

TEST_CASE("a failed communicator says why it failed, if that is known", "[comm]") {
  CHECK(
      detail::used_after_failure(sw::Operation::barrier, "") ==
      "barrier: a communicator must not be used after it has failed (end the program, or launch a new world)");
  CHECK(
      detail::used_after_failure(sw::Operation::barrier, "rank 1 left") ==
      "barrier: a communicator must not be used after it has failed (end the program, or launch a new world); it failed because rank 1 left");
}
