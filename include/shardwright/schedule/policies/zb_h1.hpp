// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief ZB-H1: 1F1B whose weight gradients fill the bubbles, with the memory of 1F1B's first rank.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/policies/warm_up_order.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief 1F1B with I for B, and on rank r of p each W r I's later; keeps min(p, m) of m microbatches.
///
/// The bubble is (p-1)(F+I) - (min(p, m)-1) min(F, I, W), which is (p-1)(F+I-W) for m >= p and W <= min(F,
/// I). Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 2.1.
struct ZBH1 {
  static constexpr std::string_view name = "zbh1";

  [[nodiscard]] static constexpr ScheduleRule rule(int, int) { return {}; }
  [[nodiscard]] static constexpr StagePlacement placement(int ranks, int) {
    return StagePlacement::loop(ranks);
  }
  [[nodiscard]] static constexpr detail::PhaseCursor cursor(int ranks, int microbatches, int rank) {
    return detail::warm_up_order(rank, microbatches, ranks - rank, rank);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
