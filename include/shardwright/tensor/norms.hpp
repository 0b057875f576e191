// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Dot products and norms as plain numbers, complete on every rank, for the loops of solvers.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/halo/exchange.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/ordered_sum.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cmath>
#include <cstdint>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Runs reduce(execution, result, workspace) for the local value, and reduces it over the ranks.
template <class L, class X, class Reduce>
[[nodiscard]] double complete_number(const X& x, Reduce reduce, SourceLocation where) {
  using Target = typename X::target;
  ShardedTensor<L, double, Target> local(x.resources(), {}, where);
  {
    auto workspace = detail::workspace_of<double>(x.resources(), kernels::reduce_workspace(x.local_size()));
    reduce(mutable_vector_of(local), mutable_vector_of(workspace));
  }
  TensorAccess::note_reduction(local, x);
  const auto finished = redistribute<Layout<0>>(std::move(local), where);
  double number = 0;
  copy_to_host<Target>(finished.execution(), finished.data(), &number, 1);
  return number;
}

template <class Op, class X>
using NormLayout = ReduceAllLayout<Op, ElementwiseFunctionLayout<operation::Square, typename X::layout>>;

/// Runs reduce(execution, elements, result, workspace) over the owned elements; `L` is the layout of the
/// results.
template <class L, class X, class Reduce>
[[nodiscard]] double number_of(const X& x, Reduce reduce, SourceLocation where) {
  double number = 0;
  if constexpr (!any_invalid<L> && RealOperand<operation::Square, typename X::value_type>::value) {
    begin_operation(where, x);
    const auto& owned = without_halos(x);
    number = complete_number<L>(
        owned,
        [&](const auto& result, const auto& workspace) {
          reduce(owned.execution(), vector_of(owned), result, workspace);
        },
        where);
  }
  return number;
}

} // namespace detail

/// @name Numbers of tensors
/// Collective over the axes that shard the tensors: one all_reduce of one number, and a wait for it. Real
/// elements, summed in double in a fixed order: the same number on every rank and in every run, and for
/// double bitwise the same as dot and norm. Halos are ignored, at the cost of a copy of the owned elements.
/// No heap allocation after the first call.
///
/// With OrderedSum, `dot_value<OrderedSum>(x, y)`, the terms are rounded to double, added exactly, and the
/// sum is rounded once: the same number on every mesh too. The all_reduce then has 576 bytes.
/// @throws InvalidArgument if shapes or meshes differ; the typed errors of communicators.
/// @{
/// @brief The sum over all elements of left * right; the layouts may differ in halos.
template <Summation Op = Sum, AnyShardedTensor Left, AnyShardedTensor Right>
[[nodiscard]] double dot_value(const Left& left, const Right& right,
                               SourceLocation where = SourceLocation::current()) {
  if constexpr (detail::is_ordered<Op>) {
    return detail::ordered_number(dot<Op>(left, right, where), where);
  } else {
    using L = DotLayout<WithoutHalos<typename Left::layout>, WithoutHalos<typename Right::layout>>;
    double number = 0;
    if constexpr (detail::DotRanks<Left, Right>::value && detail::SameElementAndTarget<Left, Right>::value &&
                  !detail::any_invalid<L>) {
      static_assert(
          RealElement<typename Left::value_type>,
          "dot_value: the elements must be floating-point and real (convert integers; of complex ones take dot, and item of the complete sum)");
      detail::begin_operation(where, left, right);
      detail::require_one_mesh("dot_value", left, right, where);
      detail::require_shape("dot_value", "right tensor", right.shape(), left.shape(), left.core(), where);
      const auto& first = detail::without_halos(left);
      const auto& second = detail::without_halos(right);
      number = detail::complete_number<L>(
          first,
          [&](const auto& result, const auto& workspace) {
            kernels::dot(first.execution(), detail::vector_of(first), detail::vector_of(second), result,
                         workspace);
          },
          where);
    }
    return number;
  }
}

/// @brief The sum of all elements. x may be a Partial<Sum> or Partial<Avg>, except with OrderedSum.
template <Summation Op = Sum, AnyShardedTensor X>
[[nodiscard]] double sum_value(const X& x, SourceLocation where = SourceLocation::current()) {
  if constexpr (detail::is_ordered<Op>)
    return detail::ordered_number(reduce_all<Op>(x, where), where);
  else
    return detail::number_of<ReduceAllLayout<Op, typename X::layout>>(
        x, [](const auto&... arguments) { kernels::sum_of_elements(arguments...); }, where);
}

/// @brief The sum of the absolute values of all elements. x must not be Partial.
template <AnyShardedTensor X>
[[nodiscard]] double norm1_value(const X& x, SourceLocation where = SourceLocation::current()) {
  return detail::number_of<detail::NormLayout<Sum, X>>(
      x, [](const auto&... arguments) { kernels::sum_of_absolutes(arguments...); }, where);
}

/// @brief The square root of the sum of the squares of all elements. x must not be Partial.
template <Summation Op = Sum, AnyShardedTensor X>
[[nodiscard]] double norm2_value(const X& x, SourceLocation where = SourceLocation::current()) {
  if constexpr (!detail::any_invalid<detail::NormLayout<Op, X>>)
    return std::sqrt(dot_value<Op>(x, x, where));
  else
    return 0;
}

/// @brief The largest absolute value of all elements; 0 if there are none, and NaN if any element is NaN. x
/// must not be Partial.
template <AnyShardedTensor X>
[[nodiscard]] double norm_max_value(const X& x, SourceLocation where = SourceLocation::current()) {
  return detail::number_of<detail::NormLayout<Max, X>>(
      x, [](const auto&... arguments) { kernels::largest_absolute(arguments...); }, where);
}

/// @}

} // namespace shardwright::inline SHARDWRIGHT_ABI
