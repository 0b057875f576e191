// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks that every microbatch passes exactly once through every stage of a schedule, in any order.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/fixed_array.hpp>
#include <shardwright/schedule/proof.hpp>
#include <shardwright/schedule/stage_table.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The first action that is unknown, misplaced, repeated or missing; `none` if all appear exactly once.
///
/// Missing actions are searched microbatch by microbatch along the stages, F first, so that the one reported
/// is the one that others wait for.
template <class Source> [[nodiscard]] constexpr ScheduleFailure uncovered(const Source& source) {
  constexpr int marks[] = {1, 6, 2, 4}; // of F, B, I, W
  const StageTable stages(source.placement(), source.microbatches());
  FixedArray<std::uint8_t> found(stages.cells());
  for (int rank = 0; rank < source.placement().ranks; ++rank) {
    auto cursor = source.cursor(rank);
    Step step;
    for (int i = 0; cursor.next(step); ++i)
      for (int k = 0; k < step.size(); ++k) {
        const Action& action = step[k];
        const StagePlace* at = stages.find(action);
        if (at == nullptr || at->rank != rank)
          return {at == nullptr ? ScheduleFault::unknown : ScheduleFault::misplaced, rank, i, action, action};
        std::uint8_t& have = found.items[stages.index(action.stage, action.microbatch)];
        const int mark = marks[static_cast<int>(action.pass)];
        if ((have & mark) != 0)
          return {ScheduleFault::repeated, rank, i, action, action};
        have = static_cast<std::uint8_t>(have | mark);
      }
  }
  for (int microbatch = 0; microbatch < stages.microbatches(); ++microbatch)
    for (const Pass pass : {Pass::forward, Pass::input_gradient, Pass::weight_gradient})
      for (int stage = 0; stage < stages.stages(); ++stage) {
        const int mark = marks[static_cast<int>(pass)];
        const int have = found.items[stages.index(stage, microbatch)];
        const bool neither = pass == Pass::input_gradient && (have & 6) == 0;
        const Action action{neither ? Pass::backward : pass, stage, microbatch};
        if ((have & mark) == 0)
          return {ScheduleFault::missing, stages.at(stage, microbatch)->rank, -1, action, action};
      }
  return {};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
