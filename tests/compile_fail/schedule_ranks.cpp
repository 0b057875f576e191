// SPDX-License-Identifier: Apache-2.0
// expect: PipelineSchedule: the policy must allow this number of ranks
// expect: (take one of the two numbers of NearestRanks in the trace, where 0 means none)
// expect: NearestRanks<4,

#include <shardwright/schedule/dual_pipe.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int ranks = 5;
#else
constexpr int ranks = 6;
#endif
constexpr auto orders = PipelineSchedule<DualPipe>::with<ranks, 20>();
