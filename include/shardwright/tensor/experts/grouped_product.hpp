// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The product of each expert's rows with the expert's own matrix, and its two gradients.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/ragged.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/product/grouped_matmul.hpp>
#include <shardwright/tensor/ordered_products.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The first row of each of this rank's experts, and the end.
template <class Rows> [[nodiscard]] std::span<const std::int64_t> first_rows_of(const Rows& rows) {
  return rows.shape().route().first_rows;
}

template <class Rows, class Weights>
void require_experts(const Rows& rows, const Weights& weights, int dimension, SourceLocation where) {
  const std::int64_t experts = rows.shape().route().experts;
  if (weights.shape()[0] == experts &&
      weights.shape()[static_cast<std::size_t>(dimension)] == rows.shape().columns())
    return;
  reject_operation("grouped",
                   "the weights of " + std::to_string(experts) + " experts must be [" +
                       std::to_string(experts) + ", in, out], with " + (dimension == 1 ? "in" : "out") +
                       " the " + std::to_string(rows.shape().columns()) +
                       " columns of the rows, but they are " + text_of(weights.shape()) +
                       " (dispatch to as many experts as there are matrices)",
                   rows.core(), where);
}

/// How the products of rows are added on a Reproducible target: columns that ranks may share form the parts
/// of a tree.
template <class Rows>
[[nodiscard]] kernels::ReproducibleProducts grouped_order(const Rows& rows, SourceLocation where) {
  using L = typename Rows::layout;
  if constexpr (L::value.shard(1).empty())
    return {};
  else
    return ordered_contraction("grouped", rows.core(), L::value, L::axes,
                               std::array{rows.shape()[0], rows.shape().columns()}, {1, 2}, where);
}

/// out_e = rows_e W_e or rows_e W_e^T, of every expert of this rank.
template <class Rows, class Weights, class Out>
void grouped_into(const Rows& rows, const Weights& weights, kernels::Transpose transpose, Out& out,
                  SourceLocation where) {
  if constexpr (is_reproducible<typename Rows::target>)
    kernels::grouped_matmul(rows.execution(), first_rows_of(rows), rows.local(), weights.local(), transpose,
                            out.mutable_local(), grouped_order(rows, where));
  else
    kernels::grouped_matmul(rows.execution(), first_rows_of(rows), rows.local(), weights.local(), transpose,
                            out.mutable_local());
}

/// out_e (+)= rows_e^T gradient_e, of every expert of this rank.
template <class Out, class Rows, class G>
void grouped_weight_gradient_into(Out& out, const Rows& rows, const G& y_gradient, double beta) {
  kernels::grouped_weight_gradient(rows.execution(), first_rows_of(rows), rows.local(), y_gradient.local(),
                                   out.mutable_local(), beta);
}

template <class Rows, class Weights, class L>
using GroupedTensor = ShardedTensor<L, typename Rows::value_type, typename Rows::target>;

} // namespace detail

namespace operation {

/// @brief y = rows_e W_e for the rows of each expert e, with its gradients: that of the rows, dy_e W_e^T, and
/// that of the weights, rows_e^T dy_e, which is 0 for an expert without rows.
struct Grouped {
  static constexpr std::string_view name = "grouped";
  static constexpr GradientReads left_gradient_reads{.left = false, .right = true};
  static constexpr GradientReads right_gradient_reads{.left = true, .right = false};

  template <class Rows, class Weights>
  [[nodiscard]] auto forward(SourceLocation where, const Rows& rows, const Weights& weights) const {
    using L = GroupedLayout<typename Rows::layout, typename Weights::layout>;
    using Result = detail::GroupedTensor<Rows, Weights, L>;
    if constexpr (!detail::SameElementAndTarget<Rows, Weights>::value || detail::any_invalid<L>) {
      return Result(rows.resources(), {}, where);
    } else {
      detail::require_one_mesh("grouped", rows, weights, where);
      detail::require_experts(rows, weights, 1, where);
      Result out(rows.resources(), rows.shape().with_columns(weights.shape()[2]), where);
      detail::grouped_into(rows, weights, kernels::Transpose::no, out, where);
      return out;
    }
  }
  template <class G, class Rows, class Weights>
  [[nodiscard]] auto left_gradient(const G& y_gradient, const Rows&, const Weights& weights) const {
    using L = GroupedInputGradientLayout<typename G::layout, typename Weights::layout>;
    using Result = detail::GroupedTensor<G, Weights, L>;
    if constexpr (detail::any_invalid<L>) {
      return Result(y_gradient.resources(), {});
    } else {
      detail::require_experts(y_gradient, weights, 2, {});
      Result out(y_gradient.resources(), y_gradient.shape().with_columns(weights.shape()[1]));
      detail::grouped_into(y_gradient, weights, kernels::Transpose::yes, out, {});
      return out;
    }
  }
  template <class G, class Rows, class Weights>
  [[nodiscard]] detail::GroupedTensor<Rows, Weights,
                                      GroupedWeightGradientLayout<typename Rows::layout, typename G::layout>>
  right_gradient(const G& y_gradient, const Rows& rows, const Weights& weights) const {
    using L = GroupedWeightGradientLayout<typename Rows::layout, typename G::layout>;
    detail::GroupedTensor<Rows, Weights, L> out(rows.resources(), weights.shape());
    if constexpr (detail::TermsOfParameter<typename Rows::target>::value && !detail::any_invalid<L>)
      detail::grouped_weight_gradient_into(out, rows, y_gradient, 0.0);
    return out;
  }
  template <class Slot, class G, class Rows>
  void right_gradient_into(const Slot& slot, const G& y_gradient, const Rows& rows) const {
    if constexpr (is_reproducible<typename Rows::target>)
      kernels::grouped_weight_gradient(rows.execution(), detail::first_rows_of(rows),
                                       std::span<const std::int64_t>(rows.shape().route().leaf_rows),
                                       rows.local(), y_gradient.local(), slot.tensor.mutable_local(),
                                       slot.beta != 0, slot.fault);
    else
      detail::grouped_weight_gradient_into(slot.tensor, rows, y_gradient, static_cast<double>(slot.beta));
  }
};

} // namespace operation

/// @brief The product of the rows of each expert with its own matrix: rows grouped by expert, [rows, in],
/// times weights [experts, in, out] sharded in dimension 0 over the axes that own the experts.
///
/// No communication. Columns are as those of a matmul with one matrix: sharded where `out` is, and
/// Partial<Sum> where `in` is, over axes that replicate the tokens. The gradient of the weights is
/// Partial<Sum> over the axes that split the tokens and own no experts; an expert without rows contributes 0.
/// Cost: 2 |rows| |in| |out| local floating-point operations, started as kernels::grouped_matmul.
/// @throws InvalidArgument if experts or extents differ.
template <Operand Rows, Operand Weights>
[[nodiscard]] auto grouped(Rows&& rows, Weights&& weights, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Grouped{}, where, std::forward<Rows>(rows), std::forward<Weights>(weights));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
