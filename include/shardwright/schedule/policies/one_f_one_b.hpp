// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief 1F1B: just enough forward passes in advance to keep the ranks busy, then one forward and one
/// backward pass in turn.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/policies/warm_up_order.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief On rank r of p, of m microbatches: min(p-r-1, m) forwards, then F and B in turn.
///
/// Keeps min(p-r, m) microbatches; the bubble is (p-1)(F+B), where F and B are the times of the passes.
/// Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", arXiv 2006.09503, section 3.2
/// (PipeDream-Flush).
struct OneFOneB {
  static constexpr std::string_view name = "1f1b";

  [[nodiscard]] static constexpr ScheduleRule rule(int, int) { return {}; }
  [[nodiscard]] static constexpr StagePlacement placement(int ranks, int) {
    return StagePlacement::loop(ranks);
  }
  [[nodiscard]] static constexpr detail::PhaseCursor cursor(int ranks, int microbatches, int rank) {
    return detail::warm_up_order(rank, microbatches, ranks - rank);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
