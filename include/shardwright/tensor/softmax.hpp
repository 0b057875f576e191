// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Softmax over the last dimension and its logarithm, with their gradients.

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/softmax.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A local block whose data is elsewhere.
template <class Tensor>
[[nodiscard]] auto matrix_of(const typename Tensor::value_type* data, const Tensor& like) {
  return make_matrix<MatrixView<const typename Tensor::value_type, typename Tensor::target>>(
      data, like.local_shape());
}

template <class X> struct SoftmaxRank {
  static constexpr bool value = X::tensor_rank >= 1 || any_invalid<typename X::layout>;
  static_assert(value, "softmax: the operand must have at least one dimension");
};

} // namespace detail

namespace operation {

/// @brief Softmax of rows, or its logarithm, with a gradient that reads the result; both reuse the memory of
/// moved-in operands.
template <class Tag> struct RowSoftmax {
  static constexpr std::string_view name = Tag::name;
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = true;
  static constexpr bool logarithm = std::is_same_v<Tag, log_softmax>;

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, X&& x) const {
    using Input = std::remove_cvref_t<X>;
    using L = RowwiseLayout<Tag, typename Input::layout>;
    if constexpr (!detail::SoftmaxRank<Input>::value || detail::any_invalid<L>) {
      return ShardedTensor<InvalidLayout, typename Input::value_type, typename Input::target>(x.resources(),
                                                                                              {});
    } else {
      auto [from, out] = reuse(std::forward<X>(x), where);
      if (out.local_size() > 0)
        kernels::softmax_forward<logarithm>(out.execution(), detail::matrix_of(from, out),
                                            out.mutable_local_matrix());
      return std::move(out);
    }
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(G&& y_gradient, const X&, const Y& y) const {
    auto [from, out] = reuse(std::forward<G>(y_gradient));
    if (out.local_size() > 0)
      kernels::softmax_backward<logarithm>(out.execution(), y.local_matrix(), detail::matrix_of(from, out),
                                           out.mutable_local_matrix());
    return std::move(out);
  }
};
using Softmax = RowSoftmax<softmax>;
using LogSoftmax = RowSoftmax<log_softmax>;

} // namespace operation

/// @brief exp(x) over the sum of its row, the last dimension, which must not be sharded.
///
/// x must not be Partial. No communication. Cost: two passes over memory; the row's largest number is
/// subtracted first, so that nothing overflows. A row of only -infinity gives NaN.
template <Operand X> [[nodiscard]] auto softmax(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Softmax{}, where, std::forward<X>(x));
}

/// @brief The logarithm of softmax, x - log(sum of exp(x)), exact where softmax is nearly 0 or 1. Layout and
/// errors as softmax.
template <Operand X> [[nodiscard]] auto log_softmax(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::LogSoftmax{}, where, std::forward<X>(x));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
