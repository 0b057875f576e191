// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/dual_pipe_v.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/interleaved_zb.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_h1.hpp>
#include <shardwright/schedule/policies/zb_h2.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>
#include <shardwright/schedule/text/csv.hpp>
#include <shardwright/schedule/whole_batch_loss.hpp>

using namespace shardwright;
using shardwright_test::ContainsSubstring;

namespace {

struct GlobalBalance {
  static constexpr bool needs_whole_batch = true;
};
struct TokenLoss {};
struct SequenceBalance {
  static constexpr bool needs_whole_batch = false;
};

/// What the type of a policy's schedule says holds for its schedules, from two microbatches on.
template <class Policy> void check_type(int ranks, int microbatches) {
  CHECK(forwards_first(make_schedule<Policy>(ranks, microbatches)) ==
        all_forwards_first<PolicySchedule<Policy>>);
}

/// GPipe, as the compiler cannot run it.
struct RunTimePolicy : GPipe {
  [[nodiscard]] static detail::PhaseCursor cursor(int ranks, int microbatches, int rank) {
    return GPipe::cursor(ranks, microbatches, rank);
  }
};

} // namespace

TEST_CASE("the type of a schedule says whether its forwards come first", "[loss]") {
  check_type<GPipe>(4, 8);
  check_type<GPipe>(1, 3);
  check_type<OneFOneB>(4, 8);
  check_type<Interleaved<2>>(4, 8);
  check_type<InterleavedZB<2>>(4, 8);
  check_type<ZBH1>(4, 8);
  check_type<ZBH2>(4, 8);
  check_type<ZBV>(4, 8);
  check_type<DualPipe>(4, 8);
  check_type<DualPipeV>(4, 8);
}

TEST_CASE("a loss over the batch needs a schedule with all forwards first", "[loss]") {
  STATIC_REQUIRE(WholeBatchLoss<GlobalBalance>);
  STATIC_REQUIRE(!WholeBatchLoss<TokenLoss>);
  STATIC_REQUIRE(!WholeBatchLoss<SequenceBalance>);
  STATIC_REQUIRE(all_forwards_first<PolicySchedule<GPipe>>);
  STATIC_REQUIRE(!all_forwards_first<const PolicySchedule<OneFOneB>&>);
  STATIC_REQUIRE(!all_forwards_first<Schedule>);
  STATIC_REQUIRE(!all_forwards_first<PolicySchedule<RunTimePolicy>>);
  STATIC_REQUIRE(carries_loss<GlobalBalance, PolicySchedule<GPipe>>);
  STATIC_REQUIRE(carries_loss<GlobalBalance, ForwardsFirstSchedule>);
  STATIC_REQUIRE(carries_loss<TokenLoss, Schedule>);
  STATIC_REQUIRE(carries_loss<SequenceBalance, PolicySchedule<ZBV>>);
}

TEST_CASE("a schedule that is chosen at run time is checked", "[loss]") {
  CHECK(ForwardsFirstSchedule(make_schedule<GPipe>(3, 4)).name() == "gpipe");
  CHECK(ForwardsFirstSchedule(schedule_from_csv("0F1,0F0,0B0,0B1\n")).microbatches() == 2);
  CHECK_THROWS_WITH(
      ForwardsFirstSchedule(make_schedule<OneFOneB>(3, 4)),
      ContainsSubstring(
          "schedule 1f1b: a loss that needs the whole batch must run under a schedule whose forwards all precede its backwards"));
  CHECK_THROWS_AS(ForwardsFirstSchedule(make_schedule<DualPipeV>(2, 4)), InvalidArgument);
}
