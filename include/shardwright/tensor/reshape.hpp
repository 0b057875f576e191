// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Changes extents without moving memory: merges, splits or regroups neighbouring dimensions.

#include <shardwright/layout/block.hpp>
#include <shardwright/layout/shape_layout.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Whether dimension `first` of both shapes is cut at the same elements on every rank.
template <class L>
[[nodiscard]] bool blocks_stay_whole(const MeshCore& core, int first, std::int64_t extent, std::int64_t inner,
                                     std::int64_t made, std::int64_t made_inner) {
  const AxisBinding binding = bind_axes(core, L::axes);
  const AxisSequence& axes = L::value.shard(first);
  std::array<int, max_axes> place{};
  for (;;) {
    const DimensionBlock before = dimension_block(L::value, first, binding.extents, place, extent);
    DimensionBlock after{0, made};
    for (const int axis : axes)
      after = chunk_of(after, binding.extents[static_cast<std::size_t>(axis)],
                       place[static_cast<std::size_t>(axis)]);
    if (before.size * inner != after.size * made_inner ||
        (before.size > 0 && before.offset * inner != after.offset * made_inner))
      return false;
    int position = axes.size() - 1;
    for (; position >= 0; --position) {
      const auto axis = static_cast<std::size_t>(axes[position]);
      if (++place[axis] < binding.extents[axis])
        break;
      place[axis] = 0;
    }
    if (position < 0)
      return true;
  }
}

} // namespace detail

namespace operation {

/// @brief Dimensions [first, first + count) become those of `shape`; the gradient is reshaped back. Both
/// share their operand's memory.
template <int first, int count, std::size_t made> struct Regroup {
  static constexpr std::string_view name = "reshape";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  static constexpr std::array<std::string_view, 0> differs_along{};
  std::array<std::int64_t, made> shape;

  [[nodiscard]] auto numbers() const { return detail::given_extents(shape); }

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, const X& x) const {
    using L = RegroupLayout<typename X::layout, first, count, static_cast<int>(made)>;
    using Result = ShardedTensor<L, const typename X::value_type, typename X::target>;
    if constexpr (detail::any_invalid<L>) {
      return Result(
          ShardedTensor<L, typename X::value_type, typename X::target>(x.resources(), {}, where).share());
    } else {
      const auto out_shape = regrouped(x.shape());
      check<typename X::layout>(x, out_shape, where);
      return detail::TensorAccess::in_memory<Result>(detail::TensorAccess::buffer(x), out_shape);
    }
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X& x, const Y&) const {
    std::array<std::int64_t, count> before{};
    for (std::size_t d = 0; d < before.size(); ++d)
      before[d] = x.shape()[first + d];
    return Regroup<first, static_cast<int>(made), static_cast<std::size_t>(count)>{before}.forward(
        {}, y_gradient);
  }

private:
  template <std::size_t rank>
  [[nodiscard]] auto regrouped(const std::array<std::int64_t, rank>& before) const {
    std::array<std::int64_t, rank - count + made> out{};
    for (std::size_t d = 0; d < out.size(); ++d)
      out[d] = d < first ? before[d] : d < first + made ? shape[d - first] : before[d + count - made];
    return out;
  }
  template <class L, class X, class Shape>
  void check(const X& x, const Shape& out_shape, SourceLocation where) const {
    const auto before = static_cast<std::int64_t>(detail::product(x.shape(), first, first + count));
    const auto after = static_cast<std::int64_t>(detail::product(shape));
    if (before != after)
      detail::reject_operation("reshape",
                               "the result must have as many elements as the input, but the shapes are " +
                                   detail::text_of(x.shape()) + " and " + detail::text_of(out_shape) +
                                   " (check the extents)",
                               x.core(), where);
    if constexpr (made > 0)
      if (after > 0 && !detail::blocks_stay_whole<L>(x.core(), first, x.shape()[first],
                                                     before / x.shape()[first], shape[0], after / shape[0]))
        detail::reject_operation(
            "reshape",
            "the blocks of a sharded dimension must stay whole, but those of " + detail::text_of(x.shape()) +
                " and " + detail::text_of(out_shape) +
                " are cut at different elements (make the first extents multiples of their ranks, or redistribute the input first)",
            x.core(), where);
  }
};

} // namespace operation

/// @brief x with different extents in the same memory: a read-only handle, or a value on a tape, as in
/// `reshape(x, {6, 4})`.
///
/// Only the first dimension may be sharded, and its blocks must stay whole: its extent must be divisible by
/// its ranks, before and after. A Partial is kept. Cost: none.
/// @throws InvalidArgument if the numbers of elements differ, or blocks would be cut elsewhere.
template <Operand X, std::size_t rank>
[[nodiscard]] auto reshape(X&& x, const std::int64_t (&shape)[rank],
                           SourceLocation where = SourceLocation::current()) {
  constexpr int all = std::remove_cvref_t<X>::tensor_rank;
  return apply(operation::Regroup<0, all, rank>{std::to_array(shape)}, where, std::forward<X>(x));
}

/// @brief x with the dimensions [first, first + count) as one: `merge_dimensions<2, 2>(x)` of [a, b, c, d] is
/// [a, b, c d].
///
/// Only the first of them may be sharded. Memory, cost and errors as reshape.
template <int first, int count, Operand X>
[[nodiscard]] auto merge_dimensions(X&& x, SourceLocation where = SourceLocation::current()) {
  std::array<std::int64_t, 1> shape{1};
  if constexpr (first >= 0 && first + count <= std::remove_cvref_t<X>::tensor_rank)
    shape[0] = static_cast<std::int64_t>(detail::product(x.shape(), first, first + count));
  return apply(operation::Regroup<first, count, 1>{shape}, where, std::forward<X>(x));
}

/// @brief x with dimension `dimension` as several: `split_dimension<2>(x, {4, 8})` of [a, b, 32] is [a, b, 4,
/// 8].
///
/// If it is sharded, its axes shard the first of them. Memory, cost and errors as reshape.
template <int dimension, Operand X, std::size_t count>
[[nodiscard]] auto split_dimension(X&& x, const std::int64_t (&shape)[count],
                                   SourceLocation where = SourceLocation::current()) {
  return apply(operation::Regroup<dimension, 1, count>{std::to_array(shape)}, where, std::forward<X>(x));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
