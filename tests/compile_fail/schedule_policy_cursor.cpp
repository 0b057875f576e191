// SPDX-License-Identifier: Apache-2.0
// expect: PipelineSchedule: the cursor of a policy must have bool next(Step&), a constructor without arguments
// expect: (give its members initial values and declare the constructor = default)

#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>

using namespace shardwright;

struct Backwards : OneFOneB {
  static constexpr std::string_view name = "backwards";
  struct Cursor {
#ifndef SHARDWRIGHT_EXPECT_FAIL
    constexpr Cursor() = default;
#endif
    constexpr Cursor(int, int, int) {}
    constexpr bool next(Step&) { return false; }
  };
  static constexpr Cursor cursor(int ranks, int microbatches, int rank) {
    return {ranks, microbatches, rank};
  }
};
static_assert(sizeof(PipelineSchedule<Backwards>) > 0);
