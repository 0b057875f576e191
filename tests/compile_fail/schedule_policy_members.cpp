// SPDX-License-Identifier: Apache-2.0
// expect: PipelineSchedule: a policy must have the static members name, rule(ranks, microbatches)
// expect: (add the one that the policy of PolicyOf in the trace lacks

#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/schedule.hpp>

using namespace shardwright;

struct Unplaced {
  static constexpr std::string_view name = "unplaced";
  static constexpr ScheduleRule rule(int, int) { return {}; }
#ifndef SHARDWRIGHT_EXPECT_FAIL
  static constexpr StagePlacement placement(int ranks, int) { return StagePlacement::loop(ranks); }
#endif
  static constexpr auto cursor(int ranks, int microbatches, int rank) {
    return OneFOneB::cursor(ranks, microbatches, rank);
  }
};
inline auto schedule() { return make_schedule<Unplaced>(2, 4); }
