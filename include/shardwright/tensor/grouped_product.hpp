// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The product of each expert's rows with the expert's own matrix, and its two gradients.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/ragged.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/kernels/matmul.hpp>
#include <shardwright/tensor/operation_checks.hpp>
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

/// The rows of one expert as a matrix.
template <class Rows>
[[nodiscard]] auto rows_of(const Rows& rows, std::size_t expert) {
  const auto& first = rows.shape().route().first_rows;
  const auto width = static_cast<std::size_t>(rows.local_shape()[1]);
  const auto begin = static_cast<std::size_t>(first[expert]);
  return MatrixView<const typename Rows::value_type, typename Rows::target>(
      rows.data() + begin * width, static_cast<std::size_t>(first[expert + 1]) - begin, width);
}
template <class Rows>
[[nodiscard]] auto mutable_rows_of(Rows& rows, std::size_t expert) {
  const auto from = rows_of(rows, expert);
  return MatrixView<typename Rows::value_type, typename Rows::target>(
      rows.mutable_data() + (from.data() - rows.data()), from.extent(0), from.extent(1));
}
/// One of this rank's matrices of weights.
template <class Weights>
[[nodiscard]] auto matrix_of(const Weights& weights, std::size_t expert) {
  const auto rows = static_cast<std::size_t>(weights.local_shape()[1]);
  const auto columns = static_cast<std::size_t>(weights.local_shape()[2]);
  return MatrixView<const typename Weights::value_type, typename Weights::target>(
      weights.data() + expert * rows * columns, rows, columns);
}
template <class Weights>
[[nodiscard]] auto mutable_matrix_of(Weights& weights, std::size_t expert) {
  const auto from = matrix_of(weights, expert);
  return MatrixView<typename Weights::value_type, typename Weights::target>(
      weights.mutable_data() + (from.data() - weights.data()), from.extent(0), from.extent(1));
}
template <class Rows>
[[nodiscard]] std::size_t own_experts(const Rows& rows) {
  return rows.shape().route().first_rows.size() - 1;
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

/// out_e (+)= rows_e^T gradient_e, of every expert of this rank.
template <class Out, class Rows, class G>
void grouped_weight_gradient_into(Out& out, const Rows& rows, const G& y_gradient, double beta) {
  for (std::size_t e = 0; e < own_experts(rows); ++e)
    kernels::matmul(rows.execution(), rows_of(rows, e), kernels::Transpose::yes, rows_of(y_gradient, e),
                    kernels::Transpose::no, mutable_matrix_of(out, e), 1.0, beta);
}

template <class Rows, class Weights, class L>
using GroupedTensor = ShardedTensor<L, typename Rows::value_type, typename Rows::target>;

} // namespace detail

namespace operation {

/// @brief y = rows_e W_e for the rows of each expert e, with its gradients: by rows that of the rows,
/// dy_e W_e^T, and by experts that of the weights, rows_e^T dy_e, which is 0 for an expert without rows.
struct Grouped {
  static constexpr std::string_view name = "grouped";
  static constexpr detail::GradientReads left_gradient_reads{.left = false, .right = true};
  static constexpr detail::GradientReads right_gradient_reads{.left = true, .right = false};

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
      for (std::size_t e = 0; e < detail::own_experts(rows); ++e)
        kernels::matmul(rows.execution(), detail::rows_of(rows, e), kernels::Transpose::no,
                        detail::matrix_of(weights, e), kernels::Transpose::no,
                        detail::mutable_rows_of(out, e));
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
      for (std::size_t e = 0; e < detail::own_experts(y_gradient); ++e)
        kernels::matmul(y_gradient.execution(), detail::rows_of(y_gradient, e), kernels::Transpose::no,
                        detail::matrix_of(weights, e), kernels::Transpose::yes,
                        detail::mutable_rows_of(out, e));
      return out;
    }
  }
  template <class G, class Rows, class Weights>
  [[nodiscard]] auto right_gradient(const G& y_gradient, const Rows& rows, const Weights& weights) const {
    using L = GroupedWeightGradientLayout<typename Rows::layout, typename G::layout>;
    detail::GroupedTensor<Rows, Weights, L> out(rows.resources(), weights.shape());
    if constexpr (!detail::any_invalid<L>)
      detail::grouped_weight_gradient_into(out, rows, y_gradient, 0.0);
    return out;
  }
  template <class Slot, class G, class Rows>
  void right_gradient_into(const Slot& slot, const G& y_gradient, const Rows& rows) const {
    detail::grouped_weight_gradient_into(slot.tensor, rows, y_gradient, static_cast<double>(slot.beta));
  }
};

} // namespace operation

/// @brief The product of the rows of each expert with its own matrix: rows grouped by expert, [rows, in],
/// times weights [experts, in, out] sharded in dimension 0 over the axes that own the experts.
///
/// No communication. Columns are as those of a matmul with one matrix: sharded where `out` is, and
/// Partial<Sum> where `in` is, over axes that replicate the tokens. The gradient of the weights is
/// Partial<Sum> over the axes that split the tokens and own no experts; an expert without rows gives 0 to it.
/// Cost: 2 |rows| |in| |out| local floating-point operations, one product of the host's or the device's
/// library for each expert.
/// @throws InvalidArgument where experts or extents differ.
template <Operand Rows, Operand Weights>
[[nodiscard]] auto grouped(Rows&& rows, Weights&& weights, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Grouped{}, where, std::forward<Rows>(rows), std::forward<Weights>(weights));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
