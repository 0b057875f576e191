// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The placement of stages on the ranks of a pipeline: in a loop, in a V, or in both directions.

#include <shardwright/core/config.hpp>

#include <cstdint>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The most stages per rank of an interleaved schedule made by its name.
inline constexpr int most_chunks = 20;

/// @brief The order in which stages are assigned to ranks.
enum class StageOrder : std::uint8_t {
  loop,          ///< Every chunk runs from the first rank to the last.
  v_shape,       ///< Chunks alternate in direction: with two, a rank holds stages s and 2p - 1 - s.
  bidirectional, ///< Each stage is on two ranks; half of the microbatches enter at each end (DualPipe).
};

/// @brief Name of an order of stages.
[[nodiscard]] constexpr std::string_view name_of(StageOrder order) noexcept {
  return order == StageOrder::loop ? "loop" : order == StageOrder::v_shape ? "V" : "bidirectional";
}

/// @brief The rank that holds each stage, as a plain value.
///
/// A rank holds `chunks` stages, one per chunk. If the order is bidirectional, a chunk is a direction, and
/// which of the two ranks of a stage runs a microbatch depends on the microbatch.
struct StagePlacement {
  StageOrder order = StageOrder::loop;
  int ranks = 1;
  int chunks = 1;
  int turn = 0; ///< First microbatch of the second direction; used only if the order is bidirectional.

  /// @brief `chunks` rounds over the ranks: stage c * ranks + r is chunk c of rank r.
  [[nodiscard]] static constexpr StagePlacement loop(int ranks, int chunks = 1) noexcept {
    return {StageOrder::loop, ranks, chunks, 0};
  }
  /// @brief There and back: rank r holds stages r and 2 * ranks - 1 - r.
  [[nodiscard]] static constexpr StagePlacement v_shape(int ranks) noexcept {
    return {StageOrder::v_shape, ranks, 2, 0};
  }
  /// @brief Microbatches before `microbatches / 2` enter at rank 0, the others at the last rank.
  [[nodiscard]] static constexpr StagePlacement bidirectional(int ranks, int microbatches) noexcept {
    return {StageOrder::bidirectional, ranks, 2, microbatches / 2};
  }

  /// @brief Stages of the model.
  [[nodiscard]] constexpr int stages() const noexcept {
    return order == StageOrder::bidirectional ? ranks : ranks * chunks;
  }
  /// @brief 1 if a microbatch runs from the last rank to the first (only if bidirectional), else 0.
  [[nodiscard]] constexpr int direction_of(int microbatch) const noexcept {
    return order == StageOrder::bidirectional && microbatch >= turn ? 1 : 0;
  }
  /// @brief Index of a stage among the chunks of its rank, for a microbatch.
  [[nodiscard]] constexpr int chunk_of(int stage, int microbatch) const noexcept {
    return order == StageOrder::bidirectional ? direction_of(microbatch) : stage / ranks;
  }
  /// @brief Rank that runs a microbatch through a stage.
  [[nodiscard]] constexpr int rank_of(int stage, int microbatch) const noexcept {
    return runs_back(chunk_of(stage, microbatch)) ? ranks - 1 - stage % ranks : stage % ranks;
  }
  /// @brief Stage of a rank's chunk.
  [[nodiscard]] constexpr int stage_of(int rank, int chunk) const noexcept {
    return (order == StageOrder::bidirectional ? 0 : chunk * ranks) +
           (runs_back(chunk) ? ranks - 1 - rank : rank);
  }
  /// @brief Returns whether a chunk runs from the last rank to the first.
  [[nodiscard]] constexpr bool runs_back(int chunk) const noexcept {
    return order != StageOrder::loop && chunk % 2 == 1;
  }

  friend constexpr bool operator==(const StagePlacement&, const StagePlacement&) = default;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
