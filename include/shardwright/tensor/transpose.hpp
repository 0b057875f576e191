// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Swaps two dimensions of a tensor, with their shards; transposes a matrix on its grid of ranks.

#include <shardwright/comm/call.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/core/strided_block.hpp>
#include <shardwright/layout/block.hpp>
#include <shardwright/layout/shape_layout.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/kernels/transpose.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace operation {

/// @brief Swaps dimensions `first` and `second`, in the gradient as well.
template <int first, int second> struct Transpose {
  static constexpr std::string_view name = "transpose";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, const X& x) const {
    using L = TransposeLayout<typename X::layout, first, second>;
    using Result = ShardedTensor<L, typename X::value_type, typename X::target>;
    if constexpr (detail::any_invalid<L>) {
      return Result(x.resources(), {}, where);
    } else {
      constexpr auto low = static_cast<std::size_t>(first < second ? first : second);
      constexpr auto high = static_cast<std::size_t>(first < second ? second : first);
      auto shape = x.shape();
      std::swap(shape[low], shape[high]);
      Result out(x.resources(), shape, where);
      kernels::TransposeShape local;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        const auto extent = static_cast<std::size_t>(x.local_shape()[d]);
        (d < low     ? local.outer
         : d == low  ? local.first
         : d < high  ? local.middle
         : d == high ? local.second
                     : local.inner) *= extent;
      }
      kernels::transpose(x.execution(), detail::vector_of(x), detail::mutable_vector_of(out), local);
      return out;
    }
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X&, const Y&) const {
    return forward({}, y_gradient);
  }
};

} // namespace operation

/// @brief x with dimensions `first` and `second` swapped, together with the axes that shard them.
///
/// No communication. A Partial is kept. Cost: one pass over memory, not in place.
template <int first, int second, Operand X>
[[nodiscard]] auto transpose(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Transpose<first, second>{}, where, std::forward<X>(x));
}

namespace detail {

/// A rank's rows and columns of a matrix.
using MatrixBlock = std::array<DimensionBlock, 2>;

/// What two ranks' blocks share, as a part of the first one.
[[nodiscard]] constexpr StridedBlock shared_part(const MatrixBlock& own, const MatrixBlock& other) {
  std::array<std::size_t, 2> first{}, size{};
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t begin = std::max(own[d].offset, other[d].offset);
    const std::int64_t end = std::min(own[d].offset + own[d].size, other[d].offset + other[d].size);
    if (begin >= end)
      return {};
    first[d] = static_cast<std::size_t>(begin - own[d].offset);
    size[d] = static_cast<std::size_t>(end - begin);
  }
  const auto stride = static_cast<std::size_t>(own[1].size);
  return {first[0] * stride + first[1], size[0], size[1], stride};
}

/// The transpose of a matrix on a grid, on the same grid: one all_to_all, by which a rank receives at most
/// its block.
template <class Matrix> [[nodiscard]] auto transposed_on_grid(const Matrix& matrix, SourceLocation where) {
  using Where = typename Matrix::target;
  using Result = ShardedTensor<typename Matrix::layout, typename Matrix::value_type, Where>;
  constexpr LayoutValue grid = Matrix::layout::value;
  const auto turned =
      operation::Transpose<0, 1>{}.forward(where, matrix); // its rows are split as columns were
  AxisBinding binding = bind_axes(matrix.core(), Matrix::layout::axes);
  const auto block_of = [&](bool before) -> MatrixBlock {
    return {block_at(grid, before ? 1 : 0, binding, turned.shape()[0]),
            block_at(grid, before ? 0 : 1, binding, turned.shape()[1])};
  };
  unsigned mask = 0;
  int ranks = 1;
  for (std::size_t axis = 0; axis < Matrix::layout::axes.size(); ++axis)
    if (binding.extents[axis] > 1) {
      mask |= 1u << binding.mesh_axis[axis];
      ranks *= binding.extents[axis];
    }
  Result out(matrix.resources(), turned.shape(), where);
  if (ranks == 1) {
    redistribute_into(turned, out, where);
    return out;
  }
  const MatrixBlock own_before = block_of(true), own_after = block_of(false);
  std::vector<StridedBlock> sent, received;
  for (int rank = 0; rank < ranks; ++rank) {
    int place = rank; // ranks of a group are numbered in mesh order
    for (int mesh_axis = MeshCore::max_axes; mesh_axis-- > 0;)
      for (std::size_t axis = 0; axis < Matrix::layout::axes.size(); ++axis)
        if (binding.extents[axis] > 1 && binding.mesh_axis[axis] == mesh_axis) {
          binding.coordinates[axis] = place % binding.extents[axis];
          place /= binding.extents[axis];
        }
    sent.push_back(shared_part(own_before, block_of(false)));
    received.push_back(shared_part(own_after, block_of(true)));
  }
  order_call_after<Where>(matrix.execution());
  matrix.core().template communicator<Where>(mask).run(
      {.operation = Operation::all_to_all,
       .element = element_type_of<typename Matrix::value_type>(),
       .in = turned.data(),
       .out = out.mutable_data(),
       .in_blocks = sent,
       .out_blocks = received,
       .subject = SubjectShape::of(matrix.shape()),
       .where = where});
  return out;
}

} // namespace detail

} // namespace shardwright::inline SHARDWRIGHT_ABI
