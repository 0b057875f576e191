// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Interleaved 1F1B: several chunks of the model per rank; the bubble is divided by their number.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/policies/interleaved_order.hpp>
#include <shardwright/schedule/policies/warm_up_order.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <algorithm>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief 1F1B over v = `chunks` chunks per rank, in groups of g microbatches.
///
/// Rank r of p keeps min(w+1, mv) chunks of m microbatches with w = 2(p-r-1) + (v-1)g; the bubble is
/// (p-1)(F+B)/v.
/// Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", arXiv 2104.04473,
/// section 2.2. `group_size` 0 uses m / max(1, m / p) microbatches per group as torch.distributed.pipelining
/// does, so that all groups are equal; another size leaves the last group smaller, as in Megatron-LM. With
/// fewer microbatches than ranks the bubble grows by (v-1)(p-m)(F+B)/v.
template <int chunks = 2, int group_size = 0> struct Interleaved {
  static_assert(chunks > 0, "Interleaved: a rank must hold at least one chunk (use 2 or more, or OneFOneB)");
  static_assert(group_size >= 0, "Interleaved: a group must have microbatches (use 0 for the default size)");
  static constexpr std::string_view name = "interleaved";

  [[nodiscard]] static constexpr int group(int ranks, int microbatches) {
    return group_size > 0 ? group_size : detail::equal_group(ranks, microbatches);
  }
  [[nodiscard]] static constexpr ScheduleRule rule(int ranks, int microbatches) {
    if constexpr (group_size == 0) {
      return detail::equal_groups_rule(ranks, microbatches);
    } else {
      const int last = microbatches % group_size;
      if (group_size < ranks && microbatches > group_size)
        return {"the ranks must be no more than the microbatches of a group", ScheduleExtent::ranks};
      if (microbatches > group_size && last != 0 && last < ranks)
        return {"the last group must have no fewer microbatches than there are ranks"};
      return {};
    }
  }
  /// @brief A group with more microbatches than ranks arrives at the first rank before its turn: make room
  /// for the rest.
  [[nodiscard]] static constexpr MessageWindow window(int ranks, int microbatches) {
    return {2, std::max(2, group(ranks, microbatches) - ranks)};
  }
  /// @param count chunks per rank, if it is known at run time only
  [[nodiscard]] static constexpr StagePlacement placement(int ranks, int, int count = chunks) {
    return StagePlacement::loop(ranks, count);
  }
  [[nodiscard]] static constexpr detail::InterleavedCursor cursor(int ranks, int microbatches, int rank,
                                                                  int count = chunks) {
    const int each = group(ranks, microbatches);
    const int warm_up = 2 * (ranks - rank - 1) + (count - 1) * each + 1;
    return {detail::warm_up_order(0, count * microbatches, warm_up), ranks, microbatches, rank, count, each};
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
