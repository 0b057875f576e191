// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Elementwise functions of two operands with their gradients, each made from formulas.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/column_sums.hpp>
#include <shardwright/tensor/kernels/lanes/value.hpp>
#include <shardwright/tensor/kernels/ordered/fixed_point_sums.hpp>
#include <shardwright/tensor/kernels/terms.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The layout of a function of two operands: the function's own, or that of a function that is linear in
/// neither of them.
template <class Function, class Left, class Right> struct BinaryLayoutOf {
  using type =
      MultiplyLayout<ElementwiseFunctionLayout<Function, Left>, ElementwiseFunctionLayout<Function, Right>>;
};
template <class Function, class Left, class Right>
requires requires { typename Function::template layout<Left, Right>; }
struct BinaryLayoutOf<Function, Left, Right> {
  using type = typename Function::template layout<Left, Right>;
};

/// The gradients of a function as functions of (dy, left, right).
template <class Function> struct LeftGradientOf {
  [[no_unique_address]] Function function;
  template <class Dy, class Left, class Right>
  SHARDWRIGHT_FUNCTION auto operator()(Dy dy, Left left, Right right) const
      -> decltype(function.left_gradient(dy, left, right)) {
    return function.left_gradient(dy, left, right);
  }
};
template <class Function> struct RightGradientOf {
  [[no_unique_address]] Function function;
  template <class Dy, class Left, class Right>
  SHARDWRIGHT_FUNCTION auto operator()(Dy dy, Left left, Right right) const
      -> decltype(function.right_gradient(dy, left, right)) {
    return function.right_gradient(dy, left, right);
  }
};

/// The operands that a gradient reads: those that its signature does not take as Unread.
template <class Gradient> struct ReadsOf {
  using V = kernels::Value<double>;
  static constexpr bool none = std::is_invocable_v<Gradient, V, Unread, Unread>;
  static constexpr bool only_left = std::is_invocable_v<Gradient, V, V, Unread>;
  static constexpr bool only_right = std::is_invocable_v<Gradient, V, Unread, V>;
  static_assert(
      none || only_left || only_right || std::is_invocable_v<Gradient, V, V, V>,
      "binary function: left_gradient and right_gradient must take (dy, left, right) (write Unread for an operand that they do not read)");
  static constexpr bool left = !none && !only_right;
  static constexpr bool right = !none && !only_left;
  static constexpr GradientReads value{.left = left, .right = right};
  /// Whether the gradient is that of the result.
  static constexpr bool unchanged = [] {
    if constexpr (none)
      return std::is_same_v<std::invoke_result_t<Gradient, V, Unread, Unread>, Unchanged<V>>;
    return false;
  }();
};

/// The layout of the terms of a gradient, a product of dy with the operands that it reads.
template <bool reads, class Terms, class OperandLayout> struct TermsTimes { using type = Terms; };
template <class Terms, class OperandLayout> struct TermsTimes<true, Terms, OperandLayout> {
  using type = MultiplyLayout<Terms, OperandLayout>;
};
template <class Gradient, class G, class X, class Y>
using TermsLayout = typename TermsTimes<
    ReadsOf<Gradient>::right,
    typename TermsTimes<ReadsOf<Gradient>::left, typename G::layout, typename X::layout>::type,
    typename Y::layout>::type;

/// The layout of the sum of the terms over the dimensions that Y lacks.
template <class Gradient, class G, class X, class Y>
using SumOfTermsLayout = LeadingSumLayout<TermsLayout<Gradient, G, X, Y>, G::tensor_rank - Y::tensor_rank>;

template <class Slot> using SlotTensor = std::remove_cvref_t<decltype(std::declval<const Slot&>().tensor)>;

/// An operand for a kernel; one that is not read may have no memory.
template <bool reads, class Tensor>
[[nodiscard]] auto elements_of(const Tensor& tensor, bool repeats = false) {
  if constexpr (reads)
    return kernels::Elements<typename Tensor::value_type>{tensor.data(), repeats};
  else
    return kernels::NoElements{};
}
template <bool reads, class Tensor> [[nodiscard]] auto right_elements_of(const Tensor& tensor) {
  if constexpr (reads)
    return kernels::RightElements<typename Tensor::value_type>{tensor.data(), tensor.local_size()};
  else
    return kernels::NoElements{};
}

/// The gradient of an operand that has the shape of the result, in memory of an operand that it reads.
template <class Gradient, class G, class X, class Y>
[[nodiscard]] auto full_gradient(std::string_view name, const Gradient& gradient, G&& dy, X&& left,
                                 Y&& right) {
  using Slope = std::remove_cvref_t<G>;
  using Right = std::remove_cvref_t<Y>;
  using Reads = ReadsOf<Gradient>;
  if constexpr (Reads::unchanged) {
    return Slope(std::forward<G>(dy));
  } else {
    using Result = ResultTensor<TermsLayout<Gradient, Slope, std::remove_cvref_t<X>, Right>, Slope>;
    const auto first = elements_of<true>(dy);
    const auto second = elements_of<Reads::left>(left);
    const auto third = right_elements_of<Reads::right>(right);
    auto out = [&] {
      if constexpr (Reads::left)
        return reuse_for<Result>(SourceLocation{}, std::forward<G>(dy), std::forward<X>(left));
      else if constexpr (Reads::right)
        return reuse_for<Result>(SourceLocation{}, std::forward<G>(dy), std::forward<Y>(right));
      else
        return reuse_for<Result>(SourceLocation{}, std::forward<G>(dy));
    }();
    kernels::store_formula<(Right::tensor_rank < Slope::tensor_rank)>(
        name.data(), out.execution(), gradient, first, second, third, out.mutable_data(), out.local_size());
    return out;
  }
}

/// The type of the gradient of a right operand; that of a sum is known without the body that adds it.
template <class Gradient, class G, class X, class Y> [[nodiscard]] constexpr auto type_of_right_gradient() {
  using Slope = std::remove_cvref_t<G>;
  using Right = std::remove_cvref_t<Y>;
  if constexpr (Slope::tensor_rank == Right::tensor_rank)
    return std::type_identity<decltype(full_gradient(std::string_view(), std::declval<const Gradient&>(),
                                                     std::declval<G>(), std::declval<X>(),
                                                     std::declval<Y>()))>{};
  else
    return std::type_identity<
        ResultTensor<SumOfTermsLayout<Gradient, Slope, std::remove_cvref_t<X>, Right>, Slope>>{};
}

/// out (+)= the terms of a gradient, summed over the dimensions that `out` lacks.
template <class Gradient, class G, class X, class Y, class Out>
void sum_terms(const Gradient& gradient, const G& dy, const X& left, const Y& right, Out& out, bool add) {
  using Reads = ReadsOf<Gradient>;
  const std::size_t columns = out.local_size();
  if (columns == 0)
    return;
  const std::size_t rows = dy.local_size() / columns;
  using Element = typename G::value_type;
  if constexpr (ComplexElement<Element>) { // rows of parts, once all terms are in memory
    auto terms = workspace_of<Element>(dy.resources(), dy.local_size());
    kernels::store_formula<true>("sw::terms", dy.execution(), gradient, elements_of<true>(dy),
                                 elements_of<Reads::left>(left), right_elements_of<Reads::right>(right),
                                 terms.mutable_data(), dy.local_size());
    auto sums =
        workspace_of<RealPart<Element>>(dy.resources(), kernels::column_sums_workspace(rows, 2 * columns));
    kernels::column_sums(dy.execution(),
                         kernels::elements_as_terms<RealPart<Element>>(as_parts(terms.data())), rows,
                         2 * columns, as_parts(out.mutable_data()), sums.mutable_data(), add);
  } else {
    auto workspace = workspace_of<AccumulationElement<typename G::value_type>>(
        dy.resources(), kernels::column_sums_workspace(rows, columns));
    kernels::column_sums(dy.execution(),
                         kernels::terms_of<typename G::value_type>(gradient, elements_of<true>(dy),
                                                                   elements_of<Reads::left>(left),
                                                                   elements_of<Reads::right>(right, true)),
                         rows, columns, out.mutable_data(), workspace.mutable_data(), add);
  }
}
/// The same, added to the gradient of a parameter, which the terms do not read.
template <class Gradient, class G, class X, class Slot>
void sum_terms_into(const Gradient& gradient, const G& dy, const X& left, const Slot& slot) {
  auto& out = slot.tensor;
  if constexpr (is_reproducible<typename G::target>) {
    if (const std::size_t columns = out.local_size(); columns > 0)
      kernels::column_sums(dy.execution(),
                           kernels::terms_of<typename G::value_type>(
                               gradient, elements_of<true>(dy), elements_of<ReadsOf<Gradient>::left>(left),
                               kernels::NoElements{}),
                           dy.local_size() / columns, columns, out.mutable_data(), slot.beta != 0,
                           slot.fault);
  } else {
    sum_terms(gradient, dy, left, out, out, slot.beta != 0);
  }
}

} // namespace detail

/// @brief An elementwise function of two operands made from its formulas: `f(left, right)` of tensors, of
/// values on a tape or of a parameter, and `f.into(out, left, right)`. The right operand may lack leading
/// dimensions.
///
/// `Function` has a `name`, a literal; a formula `operator()(left, right)`; and the gradients
/// `left_gradient(dy, left, right)` and `right_gradient(dy, left, right)`: templates of the type of their
/// arguments (kernels::Value), for devices marked SHARDWRIGHT_FUNCTION. A gradient takes as Unread an operand
/// that it does not read, which is then not kept, and returns Unchanged if it is dy. An alias
/// `layout<Left, Right>` gives the layout of the result: without it both operands must be complete. Real
/// elements; of integers, too, with `takes_integers`. No communication; cost: one pass over memory. The
/// gradient of the right operand is summed over the dimensions that it lacks, Partial<Sum> over the axes that
/// shard them. On a tape results and gradients reuse the memory of operands without other readers.
/// @throws InvalidArgument if the extents differ or the operands are on two meshes.
template <class Function> struct Binary {
  using LeftGradient = detail::LeftGradientOf<Function>;
  using RightGradient = detail::RightGradientOf<Function>;
  static_assert(sizeof(detail::ReadsOf<LeftGradient>) + sizeof(detail::ReadsOf<RightGradient>) > 0);
  static constexpr std::string_view name = Function::name;
  static constexpr GradientReads left_gradient_reads = detail::ReadsOf<LeftGradient>::value;
  static constexpr GradientReads right_gradient_reads = detail::ReadsOf<RightGradient>::value;
  [[no_unique_address]] Function function;

  template <Operand Left, Operand Right>
  [[nodiscard]] auto operator()(Left&& left, Right&& right,
                                SourceLocation where = SourceLocation::current()) const {
    return apply(*this, where, std::forward<Left>(left), std::forward<Right>(right));
  }
  /// @brief Rejects an operand with a plain tensor, with an error sentence.
  template <class Left, class Right>
  requires(detail::MixedOperands<Left, Right>) auto
  operator()(const Left& left, const Right& right, SourceLocation where = SourceLocation::current()) const {
    return detail::mixed_operands(left, right, where);
  }
  /// @brief Writes to an existing tensor, which may be one of the operands.
  template <AnyShardedTensor Out, AnyShardedTensor Left, AnyShardedTensor Right>
  void into(Out& out, const Left& left, const Right& right,
            SourceLocation where = SourceLocation::current()) const {
    if constexpr (takes<Left, Right>) {
      if constexpr (detail::DestinationOf<Result<Left, Right>, Out>::value) {
        require_operands(left, right, where);
        detail::require_one_mesh(name.data(), left, out, where);
        detail::require_shape(name.data(), "destination", out.shape(), left.shape(), left.core(), where);
        run(left.data(), right.data(), right.local_size(), out, Smaller<Left, Right>());
      }
    }
  }
  /// @brief The same in another formula.
  template <class Number, std::size_t count>
  [[nodiscard]] SHARDWRIGHT_FUNCTION auto operator()(kernels::Value<Number, count> left,
                                                     kernels::Value<Number, count> right) const {
    return function(left, right);
  }

  /// @brief The forward pass, for apply().
  template <AnyShardedTensor Left, AnyShardedTensor Right>
  [[nodiscard]] auto forward(SourceLocation where, Left&& left, Right&& right) const {
    using First = std::remove_cvref_t<Left>;
    using Second = std::remove_cvref_t<Right>;
    if constexpr (!takes<First, Second>) {
      return Result<First, Second>(left.resources(), {}, where);
    } else {
      require_operands(left, right, where);
      const auto* const first = left.data();
      const auto* const second = right.data();
      const std::size_t size = right.local_size();
      // Both must live until the kernel has been issued: the result reuses the memory of at most one of them.
      auto out = detail::reuse_for<Result<First, Second>>(where, std::forward<Left>(left),
                                                          std::forward<Right>(right));
      run(first, second, size, out, Smaller<First, Second>());
      return out;
    }
  }
  /// @brief The gradient of the left operand, for apply().
  template <class G, class X, class Y>
  [[nodiscard]] auto left_gradient(G&& y_gradient, X&& left, Y&& right) const {
    return detail::full_gradient(name, LeftGradient{function}, std::forward<G>(y_gradient),
                                 std::forward<X>(left), std::forward<Y>(right));
  }
  /// @brief The gradient of the right operand, for apply().
  template <class G, class X, class Y>
  [[nodiscard]] auto right_gradient(G&& y_gradient, X&& left, Y&& right) const ->
      typename decltype(detail::type_of_right_gradient<RightGradient, G, X, Y>())::type {
    using Slope = std::remove_cvref_t<G>;
    using Second = std::remove_cvref_t<Y>;
    if constexpr (Slope::tensor_rank == Second::tensor_rank) {
      return detail::full_gradient(name, RightGradient{function}, std::forward<G>(y_gradient),
                                   std::forward<X>(left), std::forward<Y>(right));
    } else {
      static_cast<void>(detail::TermsOfParameter<typename Slope::target>::value);
      using L = detail::SumOfTermsLayout<RightGradient, Slope, std::remove_cvref_t<X>, Second>;
      detail::ResultTensor<L, Slope> out(y_gradient.resources(), right.shape());
      if constexpr (!detail::any_invalid<L>)
        detail::sum_terms(RightGradient{function}, y_gradient, left, right, out, false);
      return out;
    }
  }
  /// @brief The same, added to the gradient of a parameter, if that has the layout of the sum.
  template <class Slot, class G, class X, class To = detail::SlotTensor<Slot>>
  requires(!right_gradient_reads.right &&
           std::is_same_v<typename To::layout,
                          detail::SumOfTermsLayout<RightGradient, G, X,
                                                   To>>) void right_gradient_into(const Slot& slot,
                                                                                  const G& y_gradient,
                                                                                  const X& left) const {
    detail::sum_terms_into(RightGradient{function}, y_gradient, left, slot);
  }

private:
  template <class Left, class Right>
  using Result = detail::ResultTensor<
      typename detail::BinaryLayoutOf<Function, typename Left::layout, typename Right::layout>::type, Left>;
  template <class Left, class Right>
  using Smaller = std::bool_constant<(Right::tensor_rank < Left::tensor_rank)>;

  /// Checks the operands.
  template <class Left, class Right>
  static constexpr bool takes = detail::SameElementAndTarget<Left, Right>::value &&
                                !detail::any_invalid<typename Result<Left, Right>::layout> &&
                                detail::RoundedOnce<Result<Left, Right>>::value &&
                                detail::RealOperand<Function, typename Left::value_type>::value;
  /// The trailing extents must agree.
  template <class Left, class Right>
  static void require_operands(const Left& left, const Right& right, SourceLocation where) {
    using First = std::remove_cvref_t<Left>;
    using Second = std::remove_cvref_t<Right>;
    detail::require_one_mesh(name.data(), left, right, where);
    using detail::require_equal_extents; // that of expert rows is found through its argument
    require_equal_extents(name.data(), "the right tensor must have the last extents of the left one",
                          left.shape(), First::tensor_rank - Second::tensor_rank, right.shape(), 0,
                          Second::tensor_rank, left.core(), where);
  }
  template <class Element, class Out, bool smaller>
  void run(const Element* left, const Element* right, std::size_t right_size, Out& out,
           std::bool_constant<smaller>) const {
    kernels::store_formula<smaller>(name.data(), out.execution(), kernels::CombineOf<Function>{function},
                                    kernels::NoElements{}, kernels::Elements<Element>{left},
                                    kernels::RightElements<Element>{right, right_size}, out.mutable_data(),
                                    out.local_size());
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
