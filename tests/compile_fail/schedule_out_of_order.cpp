// SPDX-License-Identifier: Apache-2.0
// expect: PipelineSchedule: an action must come after those of its own rank that it needs
// expect: (move the action that ScheduleFaultAt names in the trace)

#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/text/csv_schedule.hpp>

using namespace shardwright;

struct OneRank {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static constexpr std::string_view csv = "0F0,0W0,0I0\n";
#else
  static constexpr std::string_view csv = "0F0,0I0,0W0\n";
#endif
};
using Custom = PipelineSchedule<CsvSchedule<OneRank>>;
static_assert(sizeof(Custom) > 0);
