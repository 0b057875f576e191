// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Elementwise sums, differences, products and quotients of two operands, with their gradients.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/elementwise/map_kernels.hpp>
#include <shardwright/tensor/kernels/column_sums.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

struct AddOperation {
  static constexpr const char* name = "add";
  using Function = kernels::detail::PlusElements;
  template <class Left, class Right> using layout = AddLayout<Left, Right>;
};
struct SubtractOperation {
  static constexpr const char* name = "subtract";
  using Function = kernels::detail::MinusElements;
  template <class Left, class Right> using layout = AddLayout<Left, Right>;
};
struct MultiplyOperation {
  static constexpr const char* name = "multiply";
  using Function = kernels::detail::TimesElements;
  template <class Left, class Right> using layout = MultiplyLayout<Left, Right>;
};
struct DivideOperation {
  static constexpr bool needs_real = true;
  static constexpr const char* name = "divide";
  using Function = kernels::detail::QuotientElements;
  template <class Left, class Right> using layout = DivideLayout<Left, Right>;
};

/// Checks the elements of operations whose results need not be integers.
template <class Operation, class Element> [[nodiscard]] constexpr bool combines() {
  if constexpr (requires { Operation::needs_real; })
    return RealOperand<Operation, Element>::value;
  return true;
}

template <class Operation, class Left, class Right>
using CombinedTensor =
    ResultTensor<typename Operation::template layout<typename Left::layout, typename Right::layout>, Left>;

/// The right operand may lack leading dimensions; the trailing extents must agree.
template <class Left, class Right>
void require_broadcast(const char* operation, const Left& left, const Right& right, SourceLocation where) {
  constexpr std::size_t lacking = Left::tensor_rank - Right::tensor_rank;
  require_equal_extents(operation, "the right tensor must have the last extents of the left one",
                        left.shape(), lacking, right.shape(), 0, Right::tensor_rank, left.core(), where);
}

/// out = Function(left, right), with the right block repeated if it is smaller.
template <class Function, class Element, class Out>
void combine_blocks(const Element* left, const Element* right, std::size_t right_size, Out& out) {
  using Target = typename Out::target;
  const std::size_t count = out.local_size();
  if (count == 0)
    return;
  if constexpr (!RealElement<Element>) {
    combine_repeated<Function, Target>(out.execution(), left, right, out.mutable_data(), count, right_size);
  } else if (right_size == count) {
    kernels::detail::run_elementwise<Element>(
        "sw::combine", out.execution(), count,
        kernels::detail::CombineElements<Element, Function>{left, right, out.mutable_data()});
  } else {
    kernels::detail::combine_rows<Function>(out.execution(), left, right, out.mutable_data(), count,
                                            right_size);
  }
}

/// A result that reuses the memory of a moved-in operand of the same size, if this is its last handle.
template <class Result, class Left, class Right>
[[nodiscard]] Result memory_for(Left&& left, Right&& right, SourceLocation where) {
  // Metadata of the memory must not differ between ranks, and on some of them another handle may share it.
  if constexpr (gives_memory<Left&&>)
    if (TensorAccess::reusable(left)) {
      TensorAccess::buffer(left).reduced_from() = {};
      return TensorAccess::take<Result>(std::move(left));
    }
  if constexpr (gives_memory<Right&&> && std::remove_cvref_t<Right>::tensor_rank == Result::tensor_rank)
    if (TensorAccess::reusable(right)) {
      TensorAccess::buffer(right).reduced_from() = {};
      return TensorAccess::take<Result>(std::move(right));
    }
  return Result(left.resources(), left.shape(), where);
}

template <class Operation, class Left, class Right>
[[nodiscard]] auto combined(Left&& left, Right&& right, SourceLocation where) {
  using First = std::remove_cvref_t<Left>;
  using Second = std::remove_cvref_t<Right>;
  using Result = CombinedTensor<Operation, First, Second>;
  if constexpr (SameElementAndTarget<First, Second>::value && !any_invalid<typename Result::layout> &&
                combines<Operation, typename First::value_type>()) {
    require_one_mesh(Operation::name, left, right, where);
    require_broadcast(Operation::name, left, right, where);
    const auto* const first = left.data();
    const auto* const second = right.data();
    const std::size_t second_size = right.local_size();
    // Both must live until the kernel has been issued: the result reuses the memory of at most one of them.
    auto out = memory_for<Result>(std::forward<Left>(left), std::forward<Right>(right), where);
    combine_blocks<typename Operation::Function>(first, second, second_size, out);
    return out;
  } else {
    return Result(left.resources(), {}, where);
  }
}

template <class Operation, class Out, class Left, class Right>
void combined_into(Out& out, const Left& left, const Right& right, SourceLocation where) {
  using Result = CombinedTensor<Operation, Left, Right>;
  if constexpr (SameElementAndTarget<Left, Right>::value && !any_invalid<typename Result::layout> &&
                combines<Operation, typename Left::value_type>()) {
    if constexpr (DestinationOf<Result, Out>::value) {
      require_one_mesh(Operation::name, left, right, where);
      require_one_mesh(Operation::name, left, out, where);
      require_broadcast(Operation::name, left, right, where);
      require_shape(Operation::name, "destination", out.shape(), left.shape(), left.core(), where);
      combine_blocks<typename Operation::Function>(left.data(), right.data(), right.local_size(), out);
    }
  }
}

/// out (+)= the sum of `terms`, of the shape of `like`, over the dimensions that `out` lacks.
template <class Terms, class Like, class Out>
void sum_leading(const Like& like, const Terms& terms, Out& out, bool add) {
  const std::size_t columns = out.local_size();
  if (columns == 0)
    return;
  const std::size_t rows = like.local_size() / columns;
  ShardedTensor<Layout<1>, typename Terms::Number, typename Like::target> workspace(
      like.resources(), {static_cast<std::int64_t>(kernels::column_sums_workspace(rows, columns))});
  kernels::detail::run_column_sums(like.execution(), terms, rows, columns, out.mutable_data(),
                                   workspace.mutable_data(), add);
}

/// The gradient of an operand of the shape of `lacking` from terms in layout `Terms`.
template <LayoutType TermsLayout, class G, class Lacking, class Terms>
[[nodiscard]] auto leading_sum(const G& like, const Lacking& lacking, const Terms& terms) {
  using L = LeadingSumLayout<TermsLayout, G::tensor_rank - Lacking::tensor_rank>;
  ShardedTensor<L, typename G::value_type, typename G::target> out(like.resources(), lacking.shape());
  if constexpr (!any_invalid<L>)
    sum_leading(like, terms, out, false);
  return out;
}

/// The same, added to the gradient of a parameter.
template <class G, class Terms, class Slot>
void add_leading_sum(const G& like, const Terms& terms, const Slot& slot) {
  sum_leading(like, terms, slot.tensor, slot.beta != 0);
}

template <class Slot> using SlotTensor = std::remove_cvref_t<decltype(std::declval<const Slot&>().tensor)>;
/// Whether a parameter's raw gradient has the layout of the sum of terms in layout `Terms` over the
/// dimensions that the parameter lacks.
template <class Slot, class TermsLayout>
concept TakesLeadingSum =
    std::is_same_v<typename SlotTensor<Slot>::layout,
                   LeadingSumLayout<TermsLayout, TermsLayout::tensor_rank - SlotTensor<Slot>::tensor_rank>>;

/// The gradients of left + sign * right: the result's, times the sign and summed over the dimensions that the
/// right operand lacks.
template <int sign> struct SumGradients {
  static constexpr GradientReads left_gradient_reads{};
  static constexpr GradientReads right_gradient_reads{};

  template <class G, class X, class Y> [[nodiscard]] G left_gradient(G y_gradient, const X&, const Y&) const {
    return y_gradient;
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto right_gradient(G y_gradient, const X&, const Y& right) const {
    if constexpr (sign > 0 && G::tensor_rank == Y::tensor_rank)
      return y_gradient;
    else
      return leading_sum<typename G::layout>(y_gradient, right, terms_of(y_gradient));
  }
  template <class Slot, class G, class X>
  requires TakesLeadingSum<Slot, typename G::layout>
  void right_gradient_into(const Slot& slot, const G& y_gradient, const X&) const {
    add_leading_sum(y_gradient, terms_of(y_gradient), slot);
  }

private:
  template <class G> [[nodiscard]] static auto terms_of(const G& y_gradient) {
    return kernels::detail::PlainTerms<typename G::value_type>{y_gradient.data(), sign};
  }
};

} // namespace detail

namespace operation {

/// @brief left + right with its gradients.
struct Add : detail::SumGradients<1> {
  static constexpr std::string_view name = "add";

  template <AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto forward(SourceLocation where, X&& left, Y&& right) const {
    return detail::combined<detail::AddOperation>(std::forward<X>(left), std::forward<Y>(right), where);
  }
};

/// @brief left - right with its gradients.
struct Subtract : detail::SumGradients<-1> {
  static constexpr std::string_view name = "subtract";

  template <AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto forward(SourceLocation where, X&& left, Y&& right) const {
    return detail::combined<detail::SubtractOperation>(std::forward<X>(left), std::forward<Y>(right), where);
  }
};

/// @brief left * right with its gradients, the result's times the other operand.
struct Multiply {
  static constexpr std::string_view name = "multiply";
  static constexpr detail::GradientReads left_gradient_reads{.left = false, .right = true};
  static constexpr detail::GradientReads right_gradient_reads{.left = true, .right = false};

  template <AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto forward(SourceLocation where, X&& left, Y&& right) const {
    return detail::combined<detail::MultiplyOperation>(std::forward<X>(left), std::forward<Y>(right), where);
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto left_gradient(G&& y_gradient, const X&, const Y& right) const {
    return detail::combined<detail::MultiplyOperation>(std::forward<G>(y_gradient), right, {});
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto right_gradient(G&& y_gradient, X&& left, const Y& right) const {
    using Slope = std::remove_cvref_t<G>;
    using Input = std::remove_cvref_t<X>;
    if constexpr (Slope::tensor_rank == Y::tensor_rank)
      return detail::combined<detail::MultiplyOperation>(std::forward<G>(y_gradient), std::forward<X>(left),
                                                         {});
    else
      return detail::leading_sum<MultiplyLayout<typename Slope::layout, typename Input::layout>>(
          y_gradient, right,
          kernels::detail::ProductTerms<typename Slope::value_type>{y_gradient.data(), left.data()});
  }
  template <class Slot, class G, class X>
  requires detail::TakesLeadingSum<Slot, MultiplyLayout<typename G::layout, typename X::layout>>
  void right_gradient_into(const Slot& slot, const G& y_gradient, const X& left) const {
    detail::add_leading_sum(
        y_gradient, kernels::detail::ProductTerms<typename G::value_type>{y_gradient.data(), left.data()},
        slot);
  }
};

/// @brief left / right with its gradients, dy / right and -dy left / right^2.
struct Divide {
  static constexpr std::string_view name = "divide";
  static constexpr detail::GradientReads left_gradient_reads{.left = false, .right = true};
  static constexpr detail::GradientReads right_gradient_reads{.left = true, .right = true};

  template <AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto forward(SourceLocation where, X&& left, Y&& right) const {
    return detail::combined<detail::DivideOperation>(std::forward<X>(left), std::forward<Y>(right), where);
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto left_gradient(G&& y_gradient, const X&, const Y& right) const {
    return detail::combined<detail::DivideOperation>(std::forward<G>(y_gradient), right, {});
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto right_gradient(const G& y_gradient, const X& left, const Y& right) const {
    return detail::leading_sum<MultiplyLayout<typename G::layout, typename X::layout>>(
        y_gradient, right,
        kernels::detail::QuotientTerms<typename G::value_type>{y_gradient.data(), left.data(), right.data()});
  }
};

} // namespace operation

/// @brief left + right, element by element; the right operand may lack leading dimensions (a bias).
///
/// No communication. Partial plus Partial of one linear operation is Partial; Partial plus a complete value
/// is an error. The gradient of a bias is the sum over the dimensions that it lacks, Partial<Sum> over the
/// axes that shard them. On a tape the sum of two values of the same layout is deferred until it is read.
/// @throws InvalidArgument if the extents differ or the operands are on two meshes.
template <Operand Left, Operand Right>
[[nodiscard]] auto add(Left&& left, Right&& right, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Add{}, where, std::forward<Left>(left), std::forward<Right>(right));
}
/// @brief Rejects an operand with a plain tensor, with an error sentence.
template <class Left, class Right>
requires(detail::MixedOperands<Left, Right>) auto add(const Left& left, const Right& right,
                                                      SourceLocation where = SourceLocation::current()) {
  return detail::mixed_operands(left, right, where);
}
/// @brief `out` = left + right; `out` may be one of the operands.
template <AnyShardedTensor Out, AnyShardedTensor Left, AnyShardedTensor Right>
void add_into(Out& out, const Left& left, const Right& right,
              SourceLocation where = SourceLocation::current()) {
  detail::combined_into<detail::AddOperation>(out, left, right, where);
}

/// @brief left - right, element by element; layouts, broadcasting and errors as add.
template <Operand Left, Operand Right>
[[nodiscard]] auto subtract(Left&& left, Right&& right, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Subtract{}, where, std::forward<Left>(left), std::forward<Right>(right));
}
/// @brief Rejects an operand with a plain tensor, with an error sentence.
template <class Left, class Right>
requires(detail::MixedOperands<Left, Right>) auto subtract(const Left& left, const Right& right,
                                                           SourceLocation where = SourceLocation::current()) {
  return detail::mixed_operands(left, right, where);
}
/// @brief `out` = left - right; `out` may be one of the operands.
template <AnyShardedTensor Out, AnyShardedTensor Left, AnyShardedTensor Right>
void subtract_into(Out& out, const Left& left, const Right& right,
                   SourceLocation where = SourceLocation::current()) {
  detail::combined_into<detail::SubtractOperation>(out, left, right, where);
}

/// @brief left * right, element by element; the right operand may lack leading dimensions.
///
/// No communication. Partial times replicated is Partial.
/// @throws as add.
template <Operand Left, Operand Right>
[[nodiscard]] auto multiply(Left&& left, Right&& right, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Multiply{}, where, std::forward<Left>(left), std::forward<Right>(right));
}
/// @brief Rejects an operand with a plain tensor, with an error sentence.
template <class Left, class Right>
requires(detail::MixedOperands<Left, Right>) auto multiply(const Left& left, const Right& right,
                                                           SourceLocation where = SourceLocation::current()) {
  return detail::mixed_operands(left, right, where);
}
/// @brief `out` = left * right; `out` may be one of the operands.
template <AnyShardedTensor Out, AnyShardedTensor Left, AnyShardedTensor Right>
void multiply_into(Out& out, const Left& left, const Right& right,
                   SourceLocation where = SourceLocation::current()) {
  detail::combined_into<detail::MultiplyOperation>(out, left, right, where);
}

/// @brief left / right, element by element; the right operand may lack leading dimensions and must not be
/// Partial.
///
/// No communication. Partial divided by replicated is Partial. Real elements.
/// @throws as add.
template <Operand Left, Operand Right>
[[nodiscard]] auto divide(Left&& left, Right&& right, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Divide{}, where, std::forward<Left>(left), std::forward<Right>(right));
}
/// @brief Rejects an operand with a plain tensor, with an error sentence.
template <class Left, class Right>
requires(detail::MixedOperands<Left, Right>) auto divide(const Left& left, const Right& right,
                                                         SourceLocation where = SourceLocation::current()) {
  return detail::mixed_operands(left, right, where);
}
/// @brief `out` = left / right; `out` may be one of the operands.
template <AnyShardedTensor Out, AnyShardedTensor Left, AnyShardedTensor Right>
void divide_into(Out& out, const Left& left, const Right& right,
                 SourceLocation where = SourceLocation::current()) {
  detail::combined_into<detail::DivideOperation>(out, left, right, where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
