// SPDX-License-Identifier: Apache-2.0
// expect: PipelineSchedule: ranks must not wait for one another
// expect: (ScheduleFaultAt in the trace names a rank, its step and what it waits for
// expect: ScheduleFault::deadlock

#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>

using namespace shardwright;

struct Narrow : Interleaved<2> {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static constexpr MessageWindow window(int, int) { return {2, 2}; }
#endif
};
static_assert(proven<Narrow, 7, 20>);
