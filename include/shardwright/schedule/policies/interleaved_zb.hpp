// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Interleaved zero bubble: interleaved 1F1B whose weight gradients fill the bubbles, with less
/// memory.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/policies/interleaved_order.hpp>
#include <shardwright/schedule/policies/warm_up_order.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <algorithm>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Interleaved 1F1B over v = `chunks` chunks per rank, with I in place of B and half as many forward
/// passes in advance; rank r delays each W by r I's.
///
/// With groups of g microbatches as in `Interleaved<v>`, every rank keeps min((v-1)g + p, mv) chunks of m
/// microbatches. The bubble is (p-1)(F+I-W) of one chunk for m >= p and W <= min(F, I); with fewer
/// microbatches than ranks, (v-1)(p-m)(F+I) - (v-1)min(mW, (p-m)I) - (m-p)W more. The order of
/// torch.distributed.pipelining's ScheduleInterleavedZeroBubble, which applies Qi et al., "Zero Bubble
/// Pipeline Parallelism", arXiv 2401.10241, section 2.1, to Narayanan et al., arXiv 2104.04473, section 2.2.
template <int chunks = 2> struct InterleavedZB {
  static_assert(chunks > 1, "InterleavedZB: a rank must hold at least two chunks (use ZBH1 for one)");
  static constexpr std::string_view name = "interleavedzb";

  [[nodiscard]] static constexpr ScheduleRule rule(int ranks, int microbatches) {
    return detail::equal_groups_rule(ranks, microbatches);
  }
  /// @brief The first rank may be a group ahead of the last one, whatever the passes cost: make room for what
  /// it sends.
  [[nodiscard]] static constexpr MessageWindow window(int ranks, int microbatches) {
    return {2, std::max(2, detail::equal_group(ranks, microbatches) - 1)};
  }
  /// @param count chunks per rank, if it is known at run time only
  [[nodiscard]] static constexpr StagePlacement placement(int ranks, int, int count = chunks) {
    return StagePlacement::loop(ranks, count);
  }
  [[nodiscard]] static constexpr detail::InterleavedCursor cursor(int ranks, int microbatches, int rank,
                                                                  int count = chunks) {
    const int each = detail::equal_group(ranks, microbatches);
    const int warm_up = ranks - rank + (count - 1) * each;
    return {detail::warm_up_order(0, count * microbatches, warm_up, rank),
            ranks,
            microbatches,
            rank,
            count,
            each};
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
