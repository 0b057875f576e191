// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The order of a sum over ranks on a Reproducible target, and the extents that it takes.

#include <shardwright/core/error.hpp>
#include <shardwright/core/source_location.hpp>
#include <shardwright/core/strided_block.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/mesh/reproducible.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Checks that the ranks of a sum over the axes of `mask` hold subtrees of its parts.
/// @throws InvalidArgument that names the axes otherwise
void require_ordered_axes(const MeshCore& core, unsigned mask, SourceLocation where);

/// The same for the axes over which products with a weight add: all of its layout but those that shard the
/// first of three dimensions, and so hold whole matrices, each with rows of its own, as of experts.
template <class L> void require_ordered_weight(const MeshCore& core, SourceLocation where) {
  unsigned mask = 0;
  for (int axis = 0; axis < static_cast<int>(L::axes.size()); ++axis)
    if (L::tensor_rank != 3 || L::value.dimension_of(axis) != 0)
      mask |= 1u << core.axis_index(L::axes[static_cast<std::size_t>(axis)]);
  require_ordered_axes(core, mask, where);
}

/// The binary tree over the ranks of a group, which are in mesh order: neighbours first, so that every
/// aligned run of ranks is a subtree. Transports combine each node like a sum of two ranks, with its
/// rounding.
[[nodiscard]] inline ReductionOrder ordered_tree(const MeshCore& core, unsigned mask, SourceLocation where) {
  require_ordered_axes(core, mask, where);
  int ranks = 1;
  for (int axis = 0; axis < core.axis_count(); ++axis)
    ranks *= (mask >> axis & 1u) != 0 ? core.extent(axis) : 1;
  ReductionOrder tree;
  for (int stride = 1; stride < ranks; stride *= 2)
    tree.levels[static_cast<std::size_t>(tree.count++)] = {2, stride};
  return tree;
}

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void require_ordered_axes(const MeshCore& core, unsigned mask, SourceLocation where) {
  constexpr std::int64_t most_ranks = std::int64_t{1} << ReductionOrder::max_levels;
  std::int64_t ranks = 1;
  bool fits = true;
  std::string axes;
  for (int axis = 0; axis < core.axis_count(); ++axis) {
    if ((mask >> axis & 1u) == 0)
      continue;
    const auto extent = static_cast<unsigned>(core.extent(axis));
    ranks *= extent;
    fits = fits && std::has_single_bit(extent) && extent <= ordered_parts && ranks <= most_ranks;
    axes.append(axes.empty() ? "" : ", ").append(core.name(axis)).append("=").append(std::to_string(extent));
  }
  if (!fits)
    throw InvalidArgument(
        "Reproducible: the axes that split a sum or a weight must have extents of 1, 2, 4 or 8, and at most 256 ranks together, so that each rank has a subtree of its parts, but they are " +
            axes + " (choose other extents, or a target that is not Reproducible)",
        {.rank = core.world().rank(), .where = where});
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
