// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The order that the interleaved schedules share: groups of microbatches that pass a rank's chunks in
/// turn.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/policies/warm_up_order.hpp>
#include <shardwright/schedule/schedule_rule.hpp>

#include <algorithm>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Microbatches per group if all groups are equal and no smaller than needed: those of
/// torch.distributed.pipelining.
[[nodiscard]] constexpr int equal_group(int ranks, int microbatches) {
  return microbatches / std::max(1, microbatches / ranks);
}

/// The rule of `equal_group`.
[[nodiscard]] constexpr ScheduleRule equal_groups_rule(int ranks, int microbatches) {
  if (microbatches % equal_group(ranks, microbatches) != 0)
    return {"the number of microbatches must be divisible by microbatches / ranks, rounded down"};
  return {};
}

/// The order of a rank that runs its chunks in turn, `group` microbatches each.
///
/// `passes` is an order over chunks * microbatches passes of one stage; its k-th forward belongs to chunk
/// (k / group) % chunks, its k-th backward, input or weight gradient to the mirrored one. A smaller last
/// group is treated the same way.
class InterleavedCursor {
public:
  constexpr InterleavedCursor() = default;
  constexpr InterleavedCursor(const PhaseCursor& passes, int ranks, int microbatches, int rank, int chunks,
                              int group)
      : passes_(passes), ranks_(ranks), microbatches_(microbatches), rank_(rank), chunks_(chunks),
        group_(group) {}

  /// The next step of the rank; false at its end.
  constexpr bool next(Step& step) {
    if (!passes_.next(step))
      return false;
    const int k = step.first.microbatch;
    const int begin = k / (chunks_ * group_) * group_; // first microbatch of the group
    const int size = microbatches_ - begin < group_ ? microbatches_ - begin : group_;
    const int turn = (k - begin * chunks_) / size;
    step.first = {step.first.pass,
                  (step.first.pass == Pass::forward ? turn : chunks_ - 1 - turn) * ranks_ + rank_,
                  begin + (k - begin * chunks_) % size};
    return true;
  }

private:
  PhaseCursor passes_{};
  int ranks_ = 1;
  int microbatches_ = 1;
  int rank_ = 0;
  int chunks_ = 1;
  int group_ = 1;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
