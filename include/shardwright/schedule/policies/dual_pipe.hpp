// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief DualPipe: microbatches enter at both ends, and forward passes overlap with backward passes.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/policies/dual_pipe_order.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Eight steps in both directions on p ranks; keeps p+1 microbatches and every parameter twice.
///
/// The bubble is (p/2-1)(F&B + B - 3W) if F = I >= W; F > I and W > I lengthen it. DeepSeek-V3 technical
/// report, arXiv 2412.19437, section 3.2.1.
struct DualPipe {
  static constexpr std::string_view name = "dualpipe";

  [[nodiscard]] static constexpr ScheduleRule rule(int ranks, int microbatches) {
    if (ranks % 2 != 0)
      return {"the number of ranks must be even", ScheduleExtent::ranks};
    if (microbatches % 2 != 0 || microbatches < 2 * ranks)
      return {"the number of microbatches must be even and at least twice the number of ranks"};
    return {};
  }
  [[nodiscard]] static constexpr StagePlacement placement(int ranks, int microbatches) {
    return StagePlacement::bidirectional(ranks, microbatches);
  }
  [[nodiscard]] static constexpr detail::PhaseCursor cursor(int ranks, int microbatches, int rank) {
    const int each = microbatches / 2;
    const int half = ranks / 2;
    const bool far_half = rank >= half;
    const int depth = far_half ? ranks - 1 - rank : rank;
    return detail::dual_pipe_order(
        {each, {depth, ranks - 1 - depth}, {far_half ? each : 0, far_half ? 0 : each}}, half, depth);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
