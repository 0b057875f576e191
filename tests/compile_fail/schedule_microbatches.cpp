// SPDX-License-Identifier: Apache-2.0
// expect: PipelineSchedule: the policy must allow this number of microbatches on these ranks
// expect: (take one of the first two numbers of NearestMicrobatches in the trace, where 0 means none
// expect: NearestMicrobatches<8,

#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/dual_pipe.hpp>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int microbatches = 9;
#else
constexpr int microbatches = 10;
#endif
constexpr auto orders = PipelineSchedule<DualPipe>::with<4, microbatches>();
