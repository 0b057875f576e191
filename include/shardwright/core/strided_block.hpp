// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One rank's block of a row-major buffer, and the order in which a reduction adds the ranks.

#include <shardwright/core/config.hpp>

#include <array>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief `rows` runs of `row_length` elements, `row_stride` apart, from `offset`: the result of sharding one
/// dimension.
///
/// Sharding dimension d of a row-major buffer gives rows = product of the extents before d, row_length =
/// chunk times the product of the extents after d. All members count elements.
struct StridedBlock {
  std::size_t offset = 0;
  std::size_t rows = 1;
  std::size_t row_length = 0;
  std::size_t row_stride = 0;

  /// @brief Elements in the block.
  [[nodiscard]] constexpr std::size_t count() const noexcept { return rows * row_length; }
  /// @brief Returns whether the block is contiguous.
  [[nodiscard]] constexpr bool contiguous() const noexcept { return rows <= 1 || row_length == row_stride; }
  /// @brief One past the last element touched; 0 for an empty block.
  [[nodiscard]] constexpr std::size_t end() const noexcept {
    return count() == 0 ? 0 : offset + (rows - 1) * row_stride + row_length;
  }

  friend constexpr bool operator==(const StridedBlock&, const StridedBlock&) = default;
};

/// @brief A contiguous block.
[[nodiscard]] constexpr StridedBlock contiguous_block(std::size_t offset, std::size_t count) noexcept {
  return {offset, 1, count, count};
}

/// @brief The order in which a reduction combines the ranks of a group: nested sums, innermost level first.
///
/// A group flattened from axes a (major, extent A) and b (minor, extent B) has rank a*B + b. Reducing over b
/// first and then over a is levels {{B, 1}, {A, B}}; no levels means one level over all ranks in rank order.
/// Merging the collectives of several axes keeps this order, so the result is bitwise the same.
struct ReductionOrder {
  struct Level {
    int extent = 1;
    int stride = 1;
    friend constexpr bool operator==(const Level&, const Level&) = default;
  };
  static constexpr int max_levels = 8;
  std::array<Level, max_levels> levels{};
  int count = 0;

  friend constexpr bool operator==(const ReductionOrder&, const ReductionOrder&) = default;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
