// SPDX-License-Identifier: Apache-2.0

#include "schedule/reference_run.hpp"
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/schedule/policies/dual_pipe_v.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_h1.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>
#include <shardwright/schedule/text/csv.hpp>
#include <shardwright/schedule/text/explain.hpp>

#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace shardwright;
using shardwright_test::ContainsSubstring;

namespace {

using Orders = std::vector<std::vector<Step>>;

Orders orders_of(const Schedule& schedule) {
  Orders orders;
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    orders.emplace_back(schedule.steps(rank).begin(), schedule.steps(rank).end());
  return orders;
}

Schedule changed(const Schedule& schedule, Orders orders) {
  return {schedule.name(), schedule.placement(), schedule.microbatches(), std::move(orders),
          schedule.window()};
}

std::vector<Schedule> some_schedules() {
  return {make_schedule<OneFOneB>(3, 4), make_schedule<Interleaved<2>>(2, 4), make_schedule<ZBH1>(3, 3),
          make_schedule<ZBV>(2, 4), make_schedule<DualPipeV>(2, 4)};
}

std::string refusal(std::string_view text) {
  try {
    static_cast<void>(require_proof(schedule_from_csv(text)));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

} // namespace

TEST_CASE("a removed action is named, and so is a duplicated one", "[explain]") {
  for (const Schedule& schedule : some_schedules()) {
    REQUIRE(require_proof(schedule).holds());
    REQUIRE(explain(schedule, schedule.window()).empty());
    for (int rank = 0; rank < schedule.ranks(); ++rank)
      for (std::size_t i = 0; i < schedule.steps(rank).size(); ++i) {
        const Step step = schedule.steps(rank)[i];
        if (step.overlapped)
          continue;
        Orders less = orders_of(schedule);
        less[static_cast<std::size_t>(rank)].erase(less[static_cast<std::size_t>(rank)].begin() +
                                                   static_cast<std::ptrdiff_t>(i));
        const Proof without = prove(changed(schedule, less));
        REQUIRE(!without.holds());
        REQUIRE(!without.complete);
        if (step.first.pass == Pass::weight_gradient)
          REQUIRE((without.ordered && without.deadlock_free));
        REQUIRE(without.failure.fault == ScheduleFault::missing);
        REQUIRE(without.failure.rank == rank);
        REQUIRE(without.failure.needed == step.first);
        REQUIRE_THAT(explain(changed(schedule, less), schedule.window()),
                     ContainsSubstring(text_of(step.first) + " is missing on rank " + std::to_string(rank)));

        Orders more = orders_of(schedule);
        more[static_cast<std::size_t>(rank)].push_back(step);
        const Proof twice = prove(changed(schedule, more));
        REQUIRE(!twice.complete);
        REQUIRE(twice.failure.fault == ScheduleFault::repeated);
        REQUIRE(twice.failure.action == step.first);
        REQUIRE_THAT(explain(changed(schedule, more), schedule.window()), ContainsSubstring("a second time"));

        Orders moved = orders_of(schedule);
        const int other = (rank + 1) % schedule.ranks();
        moved[static_cast<std::size_t>(other)].push_back(step);
        REQUIRE(prove(changed(schedule, moved)).failure.fault == ScheduleFault::misplaced);
        REQUIRE_THAT(explain(changed(schedule, moved), schedule.window()),
                     ContainsSubstring("rank " + std::to_string(rank) + " does"));
      }
  }
}

TEST_CASE("shuffled orders hold exactly if a plain implementation of the rules completes", "[explain]") {
  int held = 0;
  int out_of_order = 0;
  int deadlocks = 0;
  std::mt19937 random(20);
  for (const Schedule& schedule : some_schedules())
    for (int swaps = 1; swaps <= 6; ++swaps)
      for (int trial = 0; trial < 60; ++trial) {
        Orders orders = orders_of(schedule);
        for (int i = 0; i < swaps; ++i) {
          auto& order = orders[random() % orders.size()];
          const std::size_t at = random() % (order.size() - 1);
          std::swap(order[at], order[at + 1]);
        }
        const Schedule shuffled = changed(schedule, orders);
        const PassCosts costs{2, 3, 1, 1};
        const MessageWindow window{trial % 3, 1 + trial % 2};
        const schedule_test::ReferenceRun reference(shuffled, costs, window);
        const Proof proof = prove(shuffled, costs, window);
        INFO(to_csv(shuffled));
        REQUIRE(proof.complete);
        REQUIRE(proof.holds() == reference.ended);
        if (proof.holds())
          REQUIRE(proof.makespan == reference.makespan);
        REQUIRE(explain(shuffled, window).empty() == proof.holds());
        held += proof.holds() ? 1 : 0;
        out_of_order += proof.failure.fault == ScheduleFault::out_of_order ? 1 : 0;
        deadlocks += proof.failure.fault == ScheduleFault::deadlock ? 1 : 0;
      }
  CHECK(held > 50);
  CHECK(out_of_order > 50);
  CHECK(deadlocks > 50);
}

TEST_CASE("a rejection names the missing dependency, the wrong order or the cycle of ranks", "[explain]") {
  CHECK_THAT(refusal("0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n"), ContainsSubstring("1F1 is missing on rank 1"));
  CHECK_THAT(refusal("0F0,0F1,0F2,0B0,0B1\n"), ContainsSubstring("0B2 is missing on rank 0"));
  CHECK_THAT(refusal("0F0,0F1,0B0,0B1\n1F0,1B0,1B1,1F1\n"),
             ContainsSubstring("rank 1, step 2: 1B1 comes before 1F1, which it needs"));
  CHECK_THAT(refusal("0F0,0W0,0I0\n"), ContainsSubstring("0W0 comes before 0I0"));
  CHECK_THAT(refusal("0F0,0I0,0W0,0B0\n"), ContainsSubstring("0B0 appears there a second time"));
  CHECK_THAT(
      refusal("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
      ContainsSubstring(
          "ranks wait for one another: rank 0 at step 1 (0B0) waits for the input gradient of stage 1 and microbatch 0 from rank 1; rank 1 at step 1 (1F1) waits for 0F1 from rank 0"));
  CHECK_THAT(refusal("0F0,2F0,0F1,2F1,2B0,2B1,0B0,0B1\n1F1,1F0,3F0,3F1,3B0,3B1,1B0,1B1\n"),
             ContainsSubstring("rank 0 at step 1 (2F0) waits for 1F0 from rank 1"));
}

TEST_CASE("a deadlock of too few sends in flight says how many would do", "[explain]") {
  const Schedule schedule = make_schedule<Interleaved<2>>(7, 20);
  CHECK_THAT(explain(schedule, {2, 2}), ContainsSubstring("to receive"));
  CHECK_THAT(explain(schedule, {2, 2}), ContainsSubstring("with 4 sends in flight they would not"));
  CHECK(explain(schedule, schedule.window()).empty());
}
