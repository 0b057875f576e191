// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Layouts of an embedding lookup and of the gradient of its table.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/detail/propagated.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class Axis, PropagationFault fault> struct EmbeddingOver {
  static_assert(
      fault != PropagationFault::axis_conflict,
      "embedding: an axis that shards the table must not shard the indices too (gather one of them over it)");
  static_assert(fault != PropagationFault::contraction_differs,
                "embedding: indices and output gradient must be sharded alike (redistribute one of them)");
  static_assert(
      fault != PropagationFault::sharding_differs,
      "embedding: the last dimensions of table and output gradient must be sharded alike (redistribute one of them)");
  static_assert(
      fault != PropagationFault::partial_times_partial && fault != PropagationFault::partial_and_sharded,
      "embedding: an axis that is Partial in the table or the output gradient must be replicated elsewhere (redistribute it first)");
  static_assert(fault != PropagationFault::partial_not_linear,
                "embedding: a Partial table must be a Sum or Avg (redistribute it first)");
  static_assert(
      fault != PropagationFault::partial,
      "embedding: the indices must not be Partial, an incomplete reduction (redistribute them first)");
};

template <bool fit> struct EmbeddingRanks {
  static_assert(
      fit,
      "embedding: the table must have 2 dimensions (vocabulary, width), and an output gradient one more than the indices (reshape first)");
};

constexpr void reject_partial(PropagatedLayout& out, const LayoutValue& indices) {
  for (int axis = 0; axis < max_axes; ++axis)
    if (indices.is_partial(axis))
      out.fail(axis, PropagationFault::partial);
}

struct EmbeddingRule {
  template <class Axis, PropagationFault fault> using Over = EmbeddingOver<Axis, fault>;
  template <bool fit> using Ranks = EmbeddingRanks<fit>;
  static constexpr bool ranks_fit(int indices, int table) { return table == 2 && indices < max_tensor_rank; }
  static constexpr PropagatedLayout apply(const LayoutValue& indices, const LayoutValue& table) {
    DimensionMap indices_map{};
    for (int d = 0; d < max_tensor_rank; ++d)
      indices_map[static_cast<std::size_t>(d)] = d;
    const DimensionMap table_map{contracted(0), indices.tensor_rank};
    PropagatedLayout out = product_layout(indices, indices_map, table, table_map, indices.tensor_rank + 1, 1);
    reject_partial(out, indices);
    return out;
  }
};

/// The gradient adds rows of the output gradient into the rows that the indices name: tokens are contracted,
/// and each owner of a part of the vocabulary keeps its own rows.
struct EmbeddingGradientRule {
  template <class Axis, PropagationFault fault> using Over = EmbeddingOver<Axis, fault>;
  template <bool fit> using Ranks = EmbeddingRanks<fit>;
  static constexpr bool ranks_fit(int indices, int output_gradient, int table) {
    return table == 2 && output_gradient == indices + 1;
  }
  static constexpr PropagatedLayout apply(const LayoutValue& indices, const LayoutValue& output_gradient,
                                          const LayoutValue& table) {
    DimensionMap indices_map{};
    for (int d = 0; d < indices.tensor_rank; ++d)
      indices_map[static_cast<std::size_t>(d)] = contracted(d);
    DimensionMap gradient_map = indices_map;
    gradient_map[static_cast<std::size_t>(indices.tensor_rank)] = 1;
    PropagatedLayout out =
        product_layout(indices, indices_map, output_gradient, gradient_map, 2, indices.tensor_rank);
    reject_partial(out, indices);
    if (out.layout.shard(1) != table.shard(1))
      fail_difference(out, out.layout.shard(1), table.shard(1), PropagationFault::sharding_differs);
    for (const int axis : table.shard(0)) {
      if (output_gradient.is_partial(axis))
        out.fail(axis, PropagationFault::partial_and_sharded);
      else if (!out.layout.is_replicated(axis))
        out.fail(axis, PropagationFault::axis_conflict);
      else
        out.layout.shard(0).push_back(axis);
    }
    return out;
  }
};

} // namespace detail

/// @brief Layout of `table[indices]`, shape [indices..., width], for a table [vocabulary, width].
///
/// A table sharded over the vocabulary leaves Partial<Sum>: each rank contributes zero for words that it does
/// not own.
template <LayoutType Indices, LayoutType Table>
using EmbeddingLayout = typename detail::Propagated<detail::EmbeddingRule, Indices, Table>::type;

/// @brief Layout of the table's gradient, given the output gradient: sharded like the table, Partial<Sum>
/// over the axes that shard the tokens.
template <LayoutType Indices, LayoutType OutputGradient, LayoutType Table>
using EmbeddingGradientLayout =
    typename detail::Propagated<detail::EmbeddingGradientRule, Indices, OutputGradient, Table>::type;

} // namespace shardwright::inline SHARDWRIGHT_ABI
