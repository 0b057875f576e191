// SPDX-License-Identifier: Apache-2.0
// expect: PipelineSchedule: ranks must not wait for one another
// expect: (ScheduleFaultAt in the trace names a rank, its step and what it waits for

#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/text/csv_schedule.hpp>

using namespace shardwright;

struct TwoRanks {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static constexpr std::string_view csv = "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n";
#else
  static constexpr std::string_view csv = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n";
#endif
};
using Custom = PipelineSchedule<CsvSchedule<TwoRanks>>;
static_assert(sizeof(Custom) > 0);
