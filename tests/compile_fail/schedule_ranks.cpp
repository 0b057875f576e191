// SPDX-License-Identifier: Apache-2.0
// expect: PipelineSchedule: the policy must allow this number of ranks
// expect: (take one of the first two numbers of NearestRanks in the trace, where 0 means none
// expect: NearestRanks<2, 4, 6, 8,

#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/dual_pipe.hpp>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr auto orders = PipelineSchedule<DualPipe>::with<3, 5>();
#else
constexpr auto orders = PipelineSchedule<DualPipe>::with<2, 6>();
#endif
