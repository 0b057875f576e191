// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The block of a tensor that a rank owns: the ceil-chunk rule, nested for several axes on one
/// dimension.

#include <shardwright/core/config.hpp>
#include <shardwright/core/integers.hpp>
#include <shardwright/layout/layout_value.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Half-open range [offset, offset + size) of one dimension.
struct DimensionBlock {
  std::int64_t offset = 0;
  std::int64_t size = 0;

  friend constexpr bool operator==(const DimensionBlock&, const DimensionBlock&) = default;
};

/// @brief Chunk `part` of `parts` of a block: c = ceil(size / parts) elements each, the last ones shorter or
/// empty.
///
/// An empty chunk's offset is the end of the block, as in `torch.chunk`.
[[nodiscard]] constexpr DimensionBlock chunk_of(DimensionBlock block, std::int64_t parts, std::int64_t part) {
  const std::int64_t chunk = ceil_div(block.size, parts);
  const std::int64_t first = part * chunk < block.size ? part * chunk : block.size;
  const std::int64_t last = first + chunk < block.size ? first + chunk : block.size;
  return {block.offset + first, last - first};
}

/// @brief A rank's range of one dimension of extent n: its axes split it in order, outermost first.
/// @param extents extent of every axis of the table
/// @param coordinates the rank's coordinate on each.
[[nodiscard]] constexpr DimensionBlock dimension_block(const LayoutValue& layout, int dimension,
                                                       std::span<const int> extents,
                                                       std::span<const int> coordinates, std::int64_t n) {
  DimensionBlock block{0, n};
  for (const int axis : layout.shard(dimension))
    block =
        chunk_of(block, extents[static_cast<std::size_t>(axis)], coordinates[static_cast<std::size_t>(axis)]);
  return block;
}

/// @brief Extents of a rank's local block, its halos included; entries past the tensor rank are 1.
[[nodiscard]] constexpr std::array<std::int64_t, max_tensor_rank>
local_shape(const LayoutValue& layout, std::span<const int> extents, std::span<const int> coordinates,
            std::span<const std::int64_t> shape) {
  std::array<std::int64_t, max_tensor_rank> out{};
  for (int d = 0; d < max_tensor_rank; ++d)
    out[static_cast<std::size_t>(d)] =
        d < layout.tensor_rank
            ? dimension_block(layout, d, extents, coordinates, shape[static_cast<std::size_t>(d)]).size +
                  layout.halo(d).width()
            : 1;
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
