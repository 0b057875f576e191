// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief ZB-H2: ZB-H1 with twice as many forward passes in advance, which leaves no bubble if F = I = W.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/policies/warm_up_order.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief On rank r of p 2(p-r)-1 forwards, then I and F in turn, each W 2r I's later; keeps min(2p-1, m) of
/// m microbatches.
///
/// For m >= 2p-1 and W <= min(F, I) a rank idles (p-1)(F+I-2W) between its first and its last pass, the
/// bubble of the paper. The makespan has at least (p-1)F of bubble, because the last rank begins so late.
/// With fewer microbatches and F = I = W the W's come too late: take ZBH1, which takes no longer (m = p = 8:
/// 31 against 34). Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 2.2.
struct ZBH2 {
  static constexpr std::string_view name = "zbh2";

  [[nodiscard]] static constexpr ScheduleRule rule(int, int) { return {}; }
  [[nodiscard]] static constexpr StagePlacement placement(int ranks, int) {
    return StagePlacement::loop(ranks);
  }
  [[nodiscard]] static constexpr detail::PhaseCursor cursor(int ranks, int microbatches, int rank) {
    return detail::warm_up_order(rank, microbatches, 2 * (ranks - rank) - 1, 2 * rank);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
