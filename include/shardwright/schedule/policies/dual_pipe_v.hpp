// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief DualPipeV: DualPipe cut in half, with stages placed in a V, so that no parameter is held twice.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/policies/dual_pipe_order.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The eight steps of DualPipe over the two chunks of a V on each of p ranks; keeps 2p+1 chunks.
///
/// The bubble is (p-1)(F&B + B - 3W), of chunks, if F = I >= W: DualPipe's figures with the number of stages,
/// which is 2p here, for its p. Sea AI Lab's "cut-in-half" of DualPipe, as in DeepSeek's published program.
struct DualPipeV {
  static constexpr std::string_view name = "dualpipev";

  [[nodiscard]] static constexpr ScheduleRule rule(int ranks, int microbatches) {
    if (microbatches < 2 * ranks)
      return {"the number of microbatches must be at least twice the number of ranks"};
    return {};
  }
  [[nodiscard]] static constexpr StagePlacement placement(int ranks, int) {
    return StagePlacement::v_shape(ranks);
  }
  [[nodiscard]] static constexpr detail::PhaseCursor cursor(int ranks, int microbatches, int rank) {
    return detail::dual_pipe_order({microbatches, {rank, 2 * ranks - 1 - rank}}, ranks, rank);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
