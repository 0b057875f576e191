// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A placement of stages as a table, with neighbouring stages in adjacent entries.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/fixed_array.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Rank of a stage, and whether its chunk runs back; no rank (-1) before the first and after the last.
struct StagePlace {
  int rank = -1;
  int runs_back = 0;
};

/// @brief Looks up the rank of a stage and its neighbours, in constant time.
class StageTable {
public:
  constexpr StageTable(const StagePlacement& placement, int microbatches)
      : stages_(placement.stages()), microbatches_(microbatches),
        turn_(placement.order == StageOrder::bidirectional ? placement.turn : microbatches),
        places_(2 * static_cast<std::size_t>(stages_ + 2)) {
    for (const int microbatch : {0, turn_})
      for (int stage = 0; stage < stages_; ++stage)
        places_.items[(microbatch == 0 ? 0 : stages_ + 2) + stage + 1] = {
            placement.rank_of(stage, microbatch), placement.runs_back(placement.chunk_of(stage, microbatch))};
  }

  [[nodiscard]] constexpr int stages() const noexcept { return stages_; }
  [[nodiscard]] constexpr int microbatches() const noexcept { return microbatches_; }
  /// @brief Entry of a stage; [-1] and [1] relative to it are its neighbours'.
  [[nodiscard]] constexpr const StagePlace* at(int stage, int microbatch) const noexcept {
    return places_.items + (microbatch >= turn_ ? stages_ + 2 : 0) + stage + 1;
  }
  /// @brief Entry of an action's stage, or none if the action names a stage or microbatch that does not
  /// exist.
  [[nodiscard]] constexpr const StagePlace* find(const Action& action) const noexcept {
    return action.stage < 0 || action.stage >= stages_ || action.microbatch < 0 ||
                   action.microbatch >= microbatches_
               ? nullptr
               : places_.items + (action.microbatch >= turn_ ? stages_ + 2 : 0) + action.stage + 1;
  }
  /// @brief Number of (stage, microbatch) pairs.
  [[nodiscard]] constexpr std::size_t cells() const noexcept {
    return static_cast<std::size_t>(stages_) * static_cast<std::size_t>(microbatches_);
  }
  /// @brief Index of a (stage, microbatch) pair.
  [[nodiscard]] constexpr std::int64_t index(int stage, int microbatch) const noexcept {
    return static_cast<std::int64_t>(stage) * microbatches_ + microbatch;
  }

private:
  int stages_;
  int microbatches_;
  int turn_;
  detail::FixedArray<StagePlace> places_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
