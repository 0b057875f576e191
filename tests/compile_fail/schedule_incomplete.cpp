// SPDX-License-Identifier: Apache-2.0
// expect: PipelineSchedule: every microbatch must pass once through every stage, each W after its I
// expect: (add or move the action that ScheduleFaultAt names in the trace)
// expect: ScheduleFault::missing

#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/text/csv_schedule.hpp>

using namespace shardwright;

struct TwoRanks {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static constexpr std::string_view csv = "0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n";
#else
  static constexpr std::string_view csv = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
#endif
};
using Custom = PipelineSchedule<CsvSchedule<TwoRanks>>;
static_assert(sizeof(Custom) > 0);
