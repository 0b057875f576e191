// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Propagation of layouts through products, sums and reductions, as plain functions of layout values.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/layout/layout_value.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Why an operation is invalid over one axis.
enum class PropagationFault : std::uint8_t {
  none,
  contraction_differs, ///< The contracted dimensions are not sharded alike.
  sharding_differs,    ///< A dimension that both operands have is not sharded alike.
  axis_conflict,       ///< The axis shards two different dimensions of the result.
  partial_times_partial,
  partial_and_sharded,  ///< Partial in one operand, sharded in the other.
  partial_and_complete, ///< A sum of a Partial and a complete value.
  partial_differs,      ///< A sum of two Partials of different operations.
  partial_not_linear,   ///< A Max, Min or Product Partial into a linear operation.
  partial,              ///< A Partial into a nonlinear operation.
  row_sharded,          ///< The dimension to normalise is sharded.
  halos_differ          ///< A dimension that both operands have does not carry the same halo.
};

/// @brief The layout of a result, and the fault, if any, of each axis of the table.
struct PropagatedLayout {
  LayoutValue layout{};
  std::array<PropagationFault, max_axes> faults{};

  [[nodiscard]] constexpr bool valid() const {
    for (const PropagationFault fault : faults)
      if (fault != PropagationFault::none)
        return false;
    return true;
  }
  /// @brief Records a fault; the first one of an axis stays.
  constexpr void fail(int axis, PropagationFault fault) {
    if (faults[static_cast<std::size_t>(axis)] == PropagationFault::none)
      faults[static_cast<std::size_t>(axis)] = fault;
  }
};

/// @brief The target of each dimension of an operand: a dimension of the result (>= 0), or contraction c as
/// -1 - c.
using DimensionMap = std::array<int, max_tensor_rank>;

/// @brief Map entry of contraction number `index`.
[[nodiscard]] constexpr int contracted(int index) { return -1 - index; }

namespace detail {

/// The operand's axes on the dimension that goes to `target`, and whether it has such a dimension.
struct MappedDimension {
  bool present = false;
  AxisSequence axes{};
  DimensionHalo halo{};
};
constexpr MappedDimension mapped_dimension(const LayoutValue& operand, const DimensionMap& map, int target) {
  for (int d = 0; d < operand.tensor_rank; ++d)
    if (map[static_cast<std::size_t>(d)] == target)
      return {true, operand.shard(d), operand.halo(d)};
  return {};
}

constexpr void fail_difference(PropagatedLayout& out, const AxisSequence& left, const AxisSequence& right,
                               PropagationFault fault) {
  const int shared = left.count < right.count ? left.count : right.count;
  for (int i = 0; i < shared; ++i)
    if (left[i] != right[i])
      return out.fail(left[i], fault);
  out.fail(left.count > shared ? left[shared] : right[shared], fault);
}

/// Merges the two operands' axes for every dimension of the result.
constexpr void join_dimensions(PropagatedLayout& out, const LayoutValue& left, const DimensionMap& left_map,
                               const LayoutValue& right, const DimensionMap& right_map) {
  for (int d = 0; d < out.layout.tensor_rank; ++d) {
    const MappedDimension first = mapped_dimension(left, left_map, d);
    const MappedDimension second = mapped_dimension(right, right_map, d);
    if (first.present && second.present && first.axes != second.axes)
      fail_difference(out, first.axes, second.axes, PropagationFault::sharding_differs);
    else if (first.present && second.present && first.halo != second.halo)
      out.fail(first.axes[0], PropagationFault::halos_differ);
    out.layout.halo(d) = first.present ? first.halo : second.halo;
    for (const int axis : first.present ? first.axes : second.axes) {
      if (out.layout.dimension_of(axis) >= 0)
        out.fail(axis, PropagationFault::axis_conflict);
      else
        out.layout.shard(d).push_back(axis);
    }
  }
}

} // namespace detail

/// @brief Layout of a product that is linear in both operands: matrix products, elementwise products,
/// embeddings.
///
/// Axis by axis: a dimension of the result takes its operand's shards; a contracted dimension must be sharded
/// alike in both operands that have it and leaves Partial<Sum>; Partial (Sum or Avg) times replicated is
/// Partial.
[[nodiscard]] constexpr PropagatedLayout product_layout(const LayoutValue& left, const DimensionMap& left_map,
                                                        const LayoutValue& right,
                                                        const DimensionMap& right_map, int result_rank,
                                                        int contractions) {
  PropagatedLayout out;
  out.layout.tensor_rank = result_rank;
  detail::join_dimensions(out, left, left_map, right, right_map);
  for (int c = 0; c < contractions; ++c) {
    const auto first = detail::mapped_dimension(left, left_map, contracted(c));
    const auto second = detail::mapped_dimension(right, right_map, contracted(c));
    if (first.present && second.present && first.axes != second.axes)
      detail::fail_difference(out, first.axes, second.axes, PropagationFault::contraction_differs);
    for (const int axis : first.present ? first.axes : second.axes) {
      if (out.layout.dimension_of(axis) >= 0)
        out.fail(axis, PropagationFault::axis_conflict);
      out.layout.set_partial(axis, ReduceOp::sum);
    }
  }
  for (int axis = 0; axis < max_axes; ++axis) {
    const bool both = left.is_partial(axis) && right.is_partial(axis);
    if (both)
      out.fail(axis, PropagationFault::partial_times_partial);
    if (both || (!left.is_partial(axis) && !right.is_partial(axis)))
      continue;
    const LayoutValue& partial = left.is_partial(axis) ? left : right;
    const LayoutValue& other = left.is_partial(axis) ? right : left;
    if (other.dimension_of(axis) >= 0)
      out.fail(axis, PropagationFault::partial_and_sharded);
    else if (!is_linear(partial.op(axis)))
      out.fail(axis, PropagationFault::partial_not_linear);
    else
      out.layout.set_partial(axis, partial.op(axis));
  }
  return out;
}

/// @brief Layout of a sum of two operands: P + P = P of one linear operation, and shards must agree.
///
/// The right operand may lack leading dimensions; it is then repeated over them, and must be replicated over
/// their axes.
[[nodiscard]] constexpr PropagatedLayout sum_layout(const LayoutValue& left, const DimensionMap& left_map,
                                                    const LayoutValue& right, const DimensionMap& right_map,
                                                    int result_rank) {
  PropagatedLayout out;
  out.layout.tensor_rank = result_rank;
  detail::join_dimensions(out, left, left_map, right, right_map);
  for (int axis = 0; axis < max_axes; ++axis) {
    if (!left.is_partial(axis) && !right.is_partial(axis))
      continue;
    if (left.is_partial(axis) != right.is_partial(axis))
      out.fail(axis, PropagationFault::partial_and_complete);
    else if (left.op(axis) != right.op(axis))
      out.fail(axis, PropagationFault::partial_differs);
    else if (!is_linear(left.op(axis)))
      out.fail(axis, PropagationFault::partial_not_linear);
    else
      out.layout.set_partial(axis, left.op(axis));
  }
  return out;
}

/// @brief Layout after a linear elementwise operation such as scaling: unchanged; Partial must be Sum or Avg.
[[nodiscard]] constexpr PropagatedLayout linear_layout(const LayoutValue& input) {
  PropagatedLayout out{input, {}};
  for (int axis = 0; axis < max_axes; ++axis)
    if (input.is_partial(axis) && !is_linear(input.op(axis)))
      out.fail(axis, PropagationFault::partial_not_linear);
  return out;
}

/// @brief Layout after a nonlinear elementwise operation: unchanged; nothing may be Partial.
[[nodiscard]] constexpr PropagatedLayout nonlinear_layout(const LayoutValue& input) {
  PropagatedLayout out{input, {}};
  for (int axis = 0; axis < max_axes; ++axis)
    if (input.is_partial(axis))
      out.fail(axis, PropagationFault::partial);
  return out;
}

/// @brief Layout after a nonlinear operation on whole rows (softmax, a norm): as nonlinear, and the last
/// dimension must not be sharded.
[[nodiscard]] constexpr PropagatedLayout rowwise_layout(const LayoutValue& input) {
  PropagatedLayout out = nonlinear_layout(input);
  if (input.tensor_rank > 0)
    for (const int axis : input.shard(input.tensor_rank - 1))
      out.fail(axis, PropagationFault::row_sharded);
  return out;
}

/// @brief Layout after reducing away dimensions [first, last): their axes become Partial of the reduction.
/// Halos are ignored and dropped.
[[nodiscard]] constexpr PropagatedLayout reduction_layout(const LayoutValue& input, int first, int last,
                                                          ReduceOp op) {
  PropagatedLayout out;
  out.layout.tensor_rank = input.tensor_rank - (last - first);
  for (int d = 0; d < input.tensor_rank; ++d) {
    if (d < first)
      out.layout.shard(d) = input.shard(d);
    else if (d >= last)
      out.layout.shard(d - (last - first)) = input.shard(d);
    else
      for (const int axis : input.shard(d))
        out.layout.set_partial(axis, op);
  }
  for (int axis = 0; axis < max_axes; ++axis) {
    if (!input.is_partial(axis))
      continue;
    const bool passes = op == ReduceOp::sum ? is_linear(input.op(axis)) : input.op(axis) == op;
    if (!passes)
      out.fail(axis, op == ReduceOp::sum ? PropagationFault::partial_not_linear : PropagationFault::partial);
    else
      out.layout.set_partial(axis, input.op(axis));
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
