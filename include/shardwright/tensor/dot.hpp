// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The dot product of two tensors and the 2-norm of one, with their gradients.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/kernels/complex.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/kernels/terms.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/ordered_sum.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Layout of a dot product: Partial<Op> over the axes that shard the operands, and over those over
/// which one of them is Partial. Of an OrderedSum, none may be Partial.
template <LayoutType Left, LayoutType Right, Summation Op = Sum>
using DotLayout = ReduceAllLayout<Op, MultiplyLayout<Left, Right>>;

namespace detail {

template <class Left, class Right> struct DotRanks {
  static constexpr bool value = Left::tensor_rank == Right::tensor_rank;
  static_assert(value, "dot: both operands must have the same number of dimensions (reshape one of them)");
};

template <class Element> struct ExactElement {
  static constexpr bool value = RealElement<Element>;
  static_assert(
      value,
      "dot: the elements of an exact sum must be floating-point and real (convert integers; add the dots of the parts of complex numbers)");
};

/// x * (2 factor).
struct TwiceTimes {
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x, V factor) const { return x * (factor + factor); }
};

/// x times the conjugate of the factor.
struct TimesConjugate {
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x, V factor) const { return x * conj(factor); }
};

/// Function(x, factor[0]), in place if x is moved in.
template <class Function, class Factor, class X>
[[nodiscard]] auto times_scalar(const Factor& factor, X&& x) {
  using Whole = typename std::remove_cvref_t<X>::value_type;
  // A real factor multiplies the parts of complex elements.
  constexpr bool whole = ComplexElement<typename Factor::value_type>;
  using Element = std::conditional_t<whole, Whole, RealPart<Whole>>;
  using One = kernels::OneElement<AccumulationElement<Element>, typename Factor::value_type>;
  auto [from, out] = reuse(std::forward<X>(x));
  kernels::store_formula("sw::d_dot", out.execution(), kernels::CombineOf<Function>{}, kernels::NoElements{},
                         kernels::Elements<Element>{reinterpret_cast<const Element*>(from)},
                         One{factor.data()}, reinterpret_cast<Element*>(out.mutable_data()),
                         out.local_size() * (sizeof(Whole) / sizeof(Element)));
  return std::move(out);
}

} // namespace detail

namespace operation {

/// @brief The sum of conj(left) * right with its gradients: the result's, conjugated for the left operand,
/// times the other operand.
struct Dot {
  static constexpr std::string_view name = "dot";
  static constexpr GradientReads left_gradient_reads{.left = false, .right = true};
  static constexpr GradientReads right_gradient_reads{.left = true, .right = false};

  template <class X, class Y>
  [[nodiscard]] auto forward(SourceLocation where, const X& left, const Y& right) const {
    using L = DotLayout<typename X::layout, typename Y::layout>;
    if constexpr (!detail::any_invalid<L> && detail::has_halos<typename X::layout>)
      return forward(where, detail::without_halos(left), detail::without_halos(right));
    else
      return owned(where, left, right);
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto left_gradient(const G& y_gradient, const X&, Y&& right) const {
    return detail::times_scalar<detail::TimesConjugate>(y_gradient, std::forward<Y>(right));
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto right_gradient(const G& y_gradient, X&& left, const Y&) const {
    return detail::times_scalar<Multiply>(y_gradient, std::forward<X>(left));
  }

private:
  /// The dot product of operands without halos.
  template <class X, class Y>
  [[nodiscard]] static auto owned(SourceLocation where, const X& left, const Y& right) {
    using L = DotLayout<typename X::layout, typename Y::layout>;
    using Result = ShardedTensor<L, AccumulationElement<typename X::value_type>, typename X::target>;
    Result out(left.resources(), {}, where);
    static_cast<void>(detail::SumOfRanks<L, typename X::target>::value);
    if constexpr (detail::DotRanks<X, Y>::value && detail::SameElementAndTarget<X, Y>::value &&
                  !detail::any_invalid<L>) {
      static_assert(FieldElement<typename X::value_type>,
                    "dot: the elements must be floating-point (convert them first)");
      detail::require_one_mesh("dot", left, right, where);
      detail::require_shape("dot", "right tensor", right.shape(), left.shape(), left.core(), where);
      auto workspace =
          detail::workspace_of<double>(left.resources(), detail::parts_in<typename X::value_type> *
                                                             kernels::reduce_workspace(left.local_size()));
      if constexpr (ComplexElement<typename X::value_type>)
        kernels::conjugate_dot(left.execution(), detail::vector_of(left), detail::vector_of(right),
                               detail::mutable_vector_of(out), detail::mutable_vector_of(workspace));
      else
        kernels::dot(left.execution(), detail::vector_of(left), detail::vector_of(right),
                     detail::mutable_vector_of(out), detail::mutable_vector_of(workspace));
      detail::TensorAccess::note_reduction(out, left);
    }
    return out;
  }
};

/// @brief The sum of squares with its gradient, 2 x times the result's.
struct SquaredNorm {
  static constexpr std::string_view name = "squared_norm";
  static constexpr bool gradient_reads_input = true;
  static constexpr bool gradient_reads_output = false;

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, const X& x) const {
    using L = ElementwiseFunctionLayout<Square, typename X::layout>;
    if constexpr (detail::any_invalid<L>)
      return ShardedTensor<L, AccumulationElement<typename X::value_type>, typename X::target>(x.resources(),
                                                                                               {});
    else if constexpr (ComplexElement<typename X::value_type>)
      return of_parts<DotLayout<typename X::layout, typename X::layout>>(where, detail::without_halos(x));
    else
      return Dot{}.forward(where, x, x);
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(const G& y_gradient, X&& x, const Y&) const {
    return detail::times_scalar<detail::TwiceTimes>(y_gradient, std::forward<X>(x));
  }

private:
  /// A real number: the squares of both parts of every element.
  template <class L, class X> [[nodiscard]] static auto of_parts(SourceLocation where, const X& x) {
    const auto parts = detail::part_vector_of(x);
    ShardedTensor<L, RealPart<typename X::value_type>, typename X::target> out(x.resources(), {}, where);
    auto workspace = detail::workspace_of<double>(x.resources(), kernels::reduce_workspace(parts.size()));
    kernels::dot(x.execution(), parts, parts, detail::mutable_vector_of(out),
                 detail::mutable_vector_of(workspace));
    detail::TensorAccess::note_reduction(out, x);
    return out;
  }
};

} // namespace operation

/// @brief The sum over all elements of conj(left) * right, a tensor of rank 0 in the AccumulationElement of
/// the operands.
///
/// Partial<Sum> over the axes that shard them: redistribute<Layout<0>> completes it. No communication. Halos
/// are ignored, at the cost of a copy of the owned elements. Summed in double, in fixed order, and rounded
/// once. An axis over which one operand is Partial must not shard the other, nor may both be.
/// @throws InvalidArgument if the shapes differ or the operands are on two meshes.
template <Operand Left, Operand Right>
[[nodiscard]] auto dot(Left&& left, Right&& right, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Dot{}, where, std::forward<Left>(left), std::forward<Right>(right));
}

/// @brief The same as an exact sum of the products, each rounded to double: its bits depend neither on the
/// mesh nor on the order.
///
/// An ExactSum, Partial<OrderedSum> over the axes that shard the operands: redistribute<Layout<0>> completes
/// it, and item(...).value() rounds it. The operands are tensors in host memory, and none is Partial; halos
/// are ignored. There is no gradient.
template <Reduction Op, Operand Left, Operand Right>
requires detail::is_ordered<Op>
[[nodiscard]] auto dot(const Left& left, const Right& right,
                       SourceLocation where = SourceLocation::current()) {
  if constexpr (!detail::OrderedOperand<Left>::value || !detail::OrderedOperand<Right>::value) {
    return dot(left, right, where);
  } else {
    using L = DotLayout<WithoutHalos<typename Left::layout>, WithoutHalos<typename Right::layout>, Op>;
    if constexpr (detail::DotRanks<Left, Right>::value && detail::SameElementAndTarget<Left, Right>::value &&
                  detail::ExactElement<typename Left::value_type>::value && !detail::any_invalid<L>) {
      detail::begin_operation(where, left, right);
      detail::require_one_mesh("dot", left, right, where);
      detail::require_shape("dot", "right tensor", right.shape(), left.shape(), left.core(), where);
      return detail::ordered_sum<L, kernels::ProductTerms>(detail::without_halos(left),
                                                           detail::without_halos(right), where);
    } else {
      return ShardedTensor<L, ExactSum, typename Left::target>(left.resources(), {}, where);
    }
  }
}

/// @brief The sum of the squared magnitudes of all elements, a real number, as dot(x, x): Partial<Sum> over
/// the axes that shard x. x must not be Partial.
template <Operand X>
[[nodiscard]] auto squared_norm(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::SquaredNorm{}, where, std::forward<X>(x));
}

/// @brief The 2-norm of all elements, the square root of squared_norm, complete on every rank: ranks cannot
/// add up square roots.
///
/// Collective over the axes that shard x. Cost: one all_reduce of one number. Its gradient at 0 is NaN.
template <Operand X> [[nodiscard]] auto norm(X&& x, SourceLocation where = SourceLocation::current()) {
  auto squares = squared_norm(std::forward<X>(x), where);
  if constexpr (AnyShardedTensor<decltype(squares)>)
    return sqrt(redistribute<Layout<0>>(std::move(squares), where), where);
  else
    return sqrt(std::move(squares).template as<Layout<0>>(where), where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
