// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief ZB-V: stages placed in a V, no bubble if F = I = W, with the memory of 1F1B.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/phase_cursor.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <algorithm>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Building blocks F0 I0 W0 F1 I1 W1 in step on p ranks; keeps min(2p, 2m) chunks of m microbatches.
///
/// For m >= 2p-1 and F = I = W no rank waits between its first and its last pass, and the bubble of the
/// makespan is (p-1)F. Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362, section
/// 3 (V-ZB). Fewer than 2p-1 microbatches are run as 2p-1, without the actions of those that do not exist.
struct ZBV {
  static constexpr std::string_view name = "zbv";

  [[nodiscard]] static constexpr ScheduleRule rule(int, int) { return {}; }
  [[nodiscard]] static constexpr StagePlacement placement(int ranks, int) {
    return StagePlacement::v_shape(ranks);
  }
  [[nodiscard]] static constexpr detail::PhaseCursor cursor(int ranks, int microbatches, int rank) {
    using namespace detail::phase_words;
    const int down = rank;        // forwards of chunk 1 that come before its first backward
    const int up = ranks - rank;  // microbatches of chunk 1 that are done before chunk 0 continues
    const int ahead = 2 * up - 1; // forwards of chunk 0 before the first of chunk 1
    const int m = std::max(microbatches, 2 * ranks - 1);
    return {{microbatches, {rank, 2 * ranks - 1 - rank}},
            {{ahead, {F(0)}},
             {down, {F(1), F(0)}},
             {up, {F(1), I(1), W(1)}},
             {m - ahead - down, {F(0), I(0), W(0), F(1), I(1), W(1)}},
             {ahead + down - ranks, {I(0), W(0), F(1), I(1), W(1)}},
             {down, {I(0), I(1)}},
             {up, {I(0), W(0)}},
             {down, {W(1)}},
             {down, {W(0)}}}};
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
