// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Inserts rows of one tensor between elements of another's rows: builds queries, keys and values for
/// attention from several products.

#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/insert_columns.hpp>
#include <shardwright/tensor/kernels/ordered/inserted_columns.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A layout without its second-to-last dimension.
template <LayoutType L> struct WithoutGroupsHolder {
  static constexpr LayoutValue value = [] {
    LayoutValue out = L::value;
    out.tensor_rank = L::tensor_rank - 1;
    out.shard(out.tensor_rank - 1) = L::value.shard(L::tensor_rank - 1);
    out.shard(out.tensor_rank) = {};
    return out;
  }();
};
template <LayoutType L, bool lacks_groups> struct InsertedOf { using type = L; };
template <LayoutType L>
requires(L::tensor_rank >= 2) struct InsertedOf<L, true> {
  using type = LayoutOf<typename L::axis_list, WithoutGroupsHolder<L>>;
};

/// Whether columns of one layout fit into rows of another.
template <LayoutType L, LayoutType Columns>
inline constexpr bool columns_fit = [] {
  constexpr bool lacks_groups = Columns::tensor_rank + 1 == L::tensor_rank;
  if constexpr (L::tensor_rank < 1 || (!lacks_groups && Columns::tensor_rank != L::tensor_rank))
    return false;
  else
    return L::value.shard(L::tensor_rank - 1).empty() && !L::value.has_partial() && !has_halos<L> &&
           std::is_same_v<Columns, typename InsertedOf<L, lacks_groups>::type>;
}();

/// The trace shows both layouts.
template <LayoutType L, LayoutType Columns> struct ColumnsInside {
  static constexpr bool value = columns_fit<L, Columns> || any_invalid<L, Columns>;
  static_assert(
      value,
      "insert_columns: neither operand may be Partial, and both must have whole rows and be split alike, except for the second-to-last dimension, which the columns may lack (redistribute one of them)");
};

} // namespace detail

namespace operation {

/// @brief x with inserted columns, and the gradients, which are parts of the result's gradient.
struct InsertColumns {
  static constexpr std::string_view name = "insert_columns";
  static constexpr GradientReads left_gradient_reads{};
  static constexpr GradientReads right_gradient_reads{};
  std::int64_t at;

  template <AnyShardedTensor X, AnyShardedTensor Columns>
  [[nodiscard]] auto forward(SourceLocation where, const X& x, const Columns& columns) const {
    using L = typename X::layout;
    using Element = std::remove_const_t<typename X::value_type>;
    using Target = typename X::target;
    if constexpr (!detail::ColumnsInside<L, typename Columns::layout>::value ||
                  !detail::SameElementAndTarget<X, Columns>::value ||
                  detail::any_invalid<L, typename Columns::layout>) {
      return ShardedTensor<InvalidLayout, Element, Target>(x.resources(), {}, where);
    } else {
      constexpr std::size_t last = X::tensor_rank - 1, shared = Columns::tensor_rank - 1;
      detail::require_one_mesh("insert_columns", x, columns, where);
      detail::require_equal_extents("insert_columns", "both must have the same extents before the last one",
                                    x.shape(), 0, columns.shape(), 0, shared, x.core(), where);
      if (at < 0 || at > x.shape()[last])
        detail::reject_operation("insert_columns",
                                 "the position must be at least 0 and at most the last extent, " +
                                     std::to_string(x.shape()[last]) + ", but it is " + std::to_string(at) +
                                     " (count elements of a row from 0)",
                                 x.core(), where);
      auto shape = x.shape();
      shape[last] += columns.shape()[shared];
      ShardedTensor<L, Element, Target> out(x.resources(), shape, where);
      if (out.local_size() > 0)
        kernels::insert_columns(out.execution(), x.local_matrix(), columns.local_matrix(),
                                out.mutable_local_matrix(), static_cast<std::size_t>(at),
                                groups_of<shared != last>(out));
      return out;
    }
  }
  template <class G, class X, class Columns>
  [[nodiscard]] auto left_gradient(const G& y_gradient, const X& x, const Columns&) const {
    ShardedTensor<typename G::layout, std::remove_const_t<typename G::value_type>, typename G::target> out(
        y_gradient.resources(), x.shape());
    if (out.local_size() > 0)
      kernels::remove_columns(out.execution(), y_gradient.local_matrix(), out.mutable_local_matrix(),
                              static_cast<std::size_t>(at));
    return out;
  }
  template <class G, class X, class Columns>
  [[nodiscard]] auto right_gradient(const G& y_gradient, const X&, const Columns& columns) const {
    constexpr bool lacks_groups = Columns::tensor_rank < G::tensor_rank;
    using L = typename SumOf<typename G::layout, lacks_groups>::type;
    ShardedTensor<L, std::remove_const_t<typename G::value_type>, typename G::target> out(
        y_gradient.resources(), columns.shape());
    const std::size_t groups = groups_of<lacks_groups>(y_gradient);
    if constexpr (is_reproducible<typename G::target> && L::value.has_partial()) {
      const std::size_t parts = parts_of(y_gradient);
      if (out.local_size() > 0)
        kernels::inserted_columns_in_tree(out.execution(), y_gradient.local_matrix(),
                                          out.mutable_local_matrix(), static_cast<std::size_t>(at), groups,
                                          parts);
    } else if (out.local_size() > 0) {
      kernels::inserted_columns(out.execution(), y_gradient.local_matrix(), out.mutable_local_matrix(),
                                static_cast<std::size_t>(at), groups);
    }
    return out;
  }

private:
  template <LayoutType L, bool lacks_groups> struct SumOf { using type = L; };
  template <LayoutType L> struct SumOf<L, true> { using type = ReductionLayout<Sum, L::tensor_rank - 2, L>; };
  /// Parts of these rows on each rank, of the most that all rows have on a Reproducible target.
  /// @throws InvalidArgument if ranks cannot share them, alike on all ranks
  template <class Tensor> [[nodiscard]] static std::size_t parts_of(const Tensor& tensor) {
    using L = typename Tensor::layout;
    const std::int64_t all = tensor.shape()[Tensor::tensor_rank - 2];
    const std::int64_t ranks = detail::ranks_along(tensor.core(), L::value, L::axes, Tensor::tensor_rank - 2);
    const std::int64_t parts = std::gcd(all, ordered_parts);
    if (parts % ranks != 0)
      detail::reject_operation(
          "insert_columns",
          "on a Reproducible target a power of two of ranks must share the rows that get "
          "the same columns, such as heads, but " +
              std::to_string(ranks) + " ranks share " + std::to_string(all) +
              " (choose 1, 2, 4 or 8 ranks, and a multiple of heads)",
          tensor.core(), {});
    return static_cast<std::size_t>(parts / ranks);
  }
  /// Rows of this rank's block that share a row of columns.
  template <bool lacks_groups, class Tensor>
  [[nodiscard]] static std::size_t groups_of(const Tensor& tensor) {
    if constexpr (lacks_groups)
      return static_cast<std::size_t>(tensor.local_shape()[Tensor::tensor_rank - 2]);
    else
      return 1;
  }
};

} // namespace operation

/// @brief out[..., :] = x[..., 0..at), columns[..., :], x[..., at..): a row with the elements of both.
///
/// The columns may lack the second-to-last dimension of x, such as heads: all of its rows get the same
/// columns, and their gradient is a sum over them, Partial<Sum> over the axes that shard them. No
/// communication. Cost: one pass over memory each way.
/// @param x [..., n]
/// @param columns [..., m], split like x, except for the missing dimension
/// @throws InvalidArgument if the leading extents differ or `at` is out of range.
template <Operand X, Operand Columns>
[[nodiscard]] auto insert_columns(X&& x, Columns&& columns, std::int64_t at,
                                  SourceLocation where = SourceLocation::current()) {
  return apply(operation::InsertColumns{at}, where, std::forward<X>(x), std::forward<Columns>(columns));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
