// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief GPipe: all forward passes, then all backward passes.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/policies/warm_up_order.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief GPipe's order: with m microbatches F0 .. F(m-1), then B0 .. B(m-1).
///
/// Keeps m microbatches; on p ranks the bubble is (p-1)(F+B), where F and B are the times of the passes.
/// Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", arXiv
/// 1811.06965, section 2.3. The only policy here in which all forward passes precede all backward passes.
struct GPipe {
  static constexpr std::string_view name = "gpipe";

  [[nodiscard]] static constexpr ScheduleRule rule(int, int) { return {}; }
  [[nodiscard]] static constexpr StagePlacement placement(int ranks, int) {
    return StagePlacement::loop(ranks);
  }
  [[nodiscard]] static constexpr detail::PhaseCursor cursor(int, int microbatches, int rank) {
    return detail::warm_up_order(rank, microbatches, microbatches);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
