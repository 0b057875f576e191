// SPDX-License-Identifier: Apache-2.0
// expect: CsvSchedule: a cell must be empty, an action such as 0F7, or an overlapped pair
// expect: (CsvCellOf in the trace names line and cell)
// expect: CsvCellOf<2,

#include <shardwright/schedule/text/csv_schedule.hpp>

using namespace shardwright;

struct TwoRanks {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static constexpr std::string_view csv = "0F0,0B0\n1F0,,1X0\n";
#else
  static constexpr std::string_view csv = "0F0,0B0\n1F0,,1B0\n";
#endif
};
static_assert(CsvSchedule<TwoRanks>::ranks == 2);
