// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Layouts of matrix products, plain and with one operand transposed.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/detail/propagated.hpp>
#include <shardwright/layout/grid_product.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The dimensions that a matrix product contracts. "M..." and "N..." stand for any number of
/// dimensions; M are usually the tokens, N one dimension or heads and their width.
enum class MatmulForm : std::uint8_t {
  plain,            ///< [M..., k] x [k, N...] -> [M..., N...]
  right_transposed, ///< [M..., N...] x [k, N...] -> [M..., k]: the gradient of the left operand
  left_transposed   ///< [M..., k] x [M..., N...] -> [k, N...]: the gradient of the right operand
};

namespace detail {

template <class Axis, PropagationFault fault> struct MatmulOver {
  static_assert(
      fault != PropagationFault::contraction_differs,
      "matmul: the contracted dimensions must be sharded alike, or both operands over one grid, as Layout<2, Shard<0, i>, Shard<1, j>> (redistribute one operand)");
  static_assert(fault != PropagationFault::axis_conflict,
                "matmul: an axis must not shard two dimensions of the result (gather one operand over it)");
  static_assert(fault != PropagationFault::partial_times_partial,
                "matmul: Partial times Partial is not defined (redistribute one operand first)");
  static_assert(
      fault != PropagationFault::partial_and_sharded,
      "matmul: an axis that is Partial in one operand must be replicated in the other (redistribute one of them)");
  static_assert(fault != PropagationFault::partial_not_linear,
                "matmul: a Partial operand must be a Sum or Avg (redistribute it first)");
};

template <bool fit> struct MatmulRanks {
  static_assert(
      fit,
      "matmul: the operands' numbers of dimensions must fit [M..., k] x [k, N...] or one of its two gradients, and the result must have at most 6 (merge dimensions)");
};

template <MatmulForm form> struct MatmulRule {
  template <class Axis, PropagationFault fault> using Over = MatmulOver<Axis, fault>;
  template <bool fit> using Ranks = MatmulRanks<fit>;

  static constexpr int result_rank(int left, int right) {
    if (form == MatmulForm::plain)
      return left - 1 + right - 1;
    if (form == MatmulForm::right_transposed)
      return left - (right - 1) + 1;
    return 1 + right - (left - 1);
  }
  static constexpr bool ranks_fit(int left, int right) {
    const bool enough = form == MatmulForm::right_transposed  ? left >= right - 1
                        : form == MatmulForm::left_transposed ? right >= left - 1
                                                              : true;
    return left >= 1 && right >= 1 && enough && result_rank(left, right) <= max_tensor_rank;
  }
  static constexpr PropagatedLayout apply(const LayoutValue& left, const LayoutValue& right) {
    const int last_left = left.tensor_rank - 1;
    const int columns = right.tensor_rank - 1;
    const int rank = result_rank(left.tensor_rank, right.tensor_rank);
    DimensionMap left_map{};
    DimensionMap right_map{};
    const auto set = [](DimensionMap& map, int d, int target) { map[static_cast<std::size_t>(d)] = target; };
    if constexpr (form == MatmulForm::plain) {
      for (int d = 0; d < last_left; ++d)
        set(left_map, d, d);
      set(left_map, last_left, contracted(0));
      set(right_map, 0, contracted(0));
      for (int d = 0; d < columns; ++d)
        set(right_map, 1 + d, last_left + d);
      return product_layout(left, left_map, right, right_map, rank, 1);
    } else if constexpr (form == MatmulForm::right_transposed) {
      for (int d = 0; d < rank - 1; ++d)
        set(left_map, d, d);
      for (int d = 0; d < columns; ++d)
        set(left_map, rank - 1 + d, contracted(d));
      set(right_map, 0, rank - 1);
      for (int d = 0; d < columns; ++d)
        set(right_map, 1 + d, contracted(d));
      return product_layout(left, left_map, right, right_map, rank, columns);
    } else {
      for (int d = 0; d < last_left; ++d)
        set(left_map, d, contracted(d));
      set(left_map, last_left, 0);
      for (int d = 0; d < last_left; ++d)
        set(right_map, d, contracted(d));
      for (int d = last_left; d < right.tensor_rank; ++d)
        set(right_map, d, 1 + d - last_left);
      return product_layout(left, left_map, right, right_map, rank, last_left);
    }
  }
};

template <class Left, class Right, MatmulForm form>
struct MatmulLayoutOf : Propagated<MatmulRule<form>, Left, Right> {};
template <class Grid, MatmulForm form>
requires is_grid<Grid>
struct MatmulLayoutOf<Grid, Grid, form> {
  using type = Grid;
};

} // namespace detail

/// @brief Layout of a matrix product of operands laid out as `Left` and `Right`.
///
/// Rows follow the left operand, columns the right one; a contracted dimension that is sharded alike in both
/// gives Partial<Sum>; a Partial (Sum or Avg) operand stays Partial if the other one is replicated. Two
/// matrices on one grid give a third one on it.
template <LayoutType Left, LayoutType Right, MatmulForm form = MatmulForm::plain>
using MatmulLayout = typename detail::MatmulLayoutOf<Left, Right, form>::type;

} // namespace shardwright::inline SHARDWRIGHT_ABI
