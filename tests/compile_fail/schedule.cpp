// SPDX-License-Identifier: Apache-2.0

#include <shardwright/schedule/layer_partition.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/text/csv_schedule.hpp>

using namespace shardwright;

namespace layer_partition_sum {
// expect: LayerPartition: the layers of the stages must sum to the layers of the model
// expect: (change the layers of a stage, or the layers of the model)
// expect: LayersOfStages<11,

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Partition = StaticLayerPartition<12, 2, 3, 3, 3>;
#else
using Partition = StaticLayerPartition<12, 2, 3, 3, 4>;
#endif

static_assert(Partition::stages == 4);
} // namespace layer_partition_sum

namespace schedule_csv_cell {
// expect: CsvSchedule: a cell must be empty, an action such as 0F7, or an overlapped pair
// expect: (CsvCellOf in the trace names line and cell)
// expect: CsvCellOf<2,

struct TwoRanks {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static constexpr std::string_view csv = "0F0,0B0\n1F0,,1X0\n";
#else
  static constexpr std::string_view csv = "0F0,0B0\n1F0,,1B0\n";
#endif
};

static_assert(CsvSchedule<TwoRanks>::ranks == 2);
} // namespace schedule_csv_cell

namespace schedule_deadlock {
// expect: PipelineSchedule: ranks must not wait for one another
// expect: (ScheduleFaultAt in the trace names a rank, its step and what it waits for

struct TwoRanks {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static constexpr std::string_view csv = "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n";
#else
  static constexpr std::string_view csv = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n";
#endif
};

using Custom = PipelineSchedule<CsvSchedule<TwoRanks>>;

static_assert(sizeof(Custom) > 0);
} // namespace schedule_deadlock

namespace schedule_incomplete {
// expect: PipelineSchedule: every microbatch must pass once through every stage, each W after its I
// expect: (add or move the action that ScheduleFaultAt names in the trace)
// expect: ScheduleFault::missing

struct TwoRanks {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static constexpr std::string_view csv = "0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n";
#else
  static constexpr std::string_view csv = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
#endif
};

using Custom = PipelineSchedule<CsvSchedule<TwoRanks>>;

static_assert(sizeof(Custom) > 0);
} // namespace schedule_incomplete

namespace schedule_microbatches {
// expect: PipelineSchedule: the policy must allow this number of microbatches on these ranks
// expect: (take one of the first two numbers of NearestMicrobatches in the trace, where 0 means none
// expect: NearestMicrobatches<8,

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int microbatches = 9;
#else
constexpr int microbatches = 10;
#endif

constexpr auto orders = PipelineSchedule<DualPipe>::with<4, microbatches>();
} // namespace schedule_microbatches

namespace schedule_not_proven {
// expect: PipelineSchedule: ranks must not wait for one another
// expect: (ScheduleFaultAt in the trace names a rank, its step and what it waits for
// expect: ScheduleFault::deadlock

struct Narrow : Interleaved<2> {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static constexpr MessageWindow window(int, int) { return {2, 2}; }
#endif
};

static_assert(proven<Narrow, 7, 20>);
} // namespace schedule_not_proven

namespace schedule_out_of_order {
// expect: PipelineSchedule: an action must come after those of its own rank that it needs
// expect: (move the action that ScheduleFaultAt names in the trace)

struct OneRank {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static constexpr std::string_view csv = "0F0,0W0,0I0\n";
#else
  static constexpr std::string_view csv = "0F0,0I0,0W0\n";
#endif
};

using Custom = PipelineSchedule<CsvSchedule<OneRank>>;

static_assert(sizeof(Custom) > 0);
} // namespace schedule_out_of_order

namespace schedule_policy_cursor {
// expect: PipelineSchedule: the cursor of a policy must have bool next(Step&), a constructor without arguments
// expect: (give its members initial values and declare the constructor = default)

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
} // namespace schedule_policy_cursor

namespace schedule_policy_members {
// expect: PipelineSchedule: a policy must have the static members name, rule(ranks, microbatches)
// expect: (add the one that the policy of PolicyOf in the trace lacks

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
} // namespace schedule_policy_members

namespace schedule_ranks {
// expect: PipelineSchedule: the policy must allow this number of ranks
// expect: (take one of the first two numbers of NearestRanks in the trace, where 0 means none
// expect: NearestRanks<2, 4, 6, 8,

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr auto orders = PipelineSchedule<DualPipe>::with<3, 5>();
#else
constexpr auto orders = PipelineSchedule<DualPipe>::with<2, 6>();
#endif
} // namespace schedule_ranks
