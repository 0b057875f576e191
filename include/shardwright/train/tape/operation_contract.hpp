// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The members that a tape needs of an operation: forward pass, gradients, and what these read, with
/// an error sentence for each one that is missing.

#include <shardwright/layout/gradient.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/tape/first_pass.hpp>

#include <concepts>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The name of an operation in a dry run.
template <class Operation>
inline constexpr std::string_view name_of_operation = [] {
  if constexpr (requires { Operation::name; })
    return std::string_view(Operation::name);
  else
    return std::string_view("operation");
}();

/// The result of an operation, and the additional state that its gradient needs.
template <class Value, class State> struct WithState {
  Value value;
  State state;
};

template <class Result> struct ResultParts {
  using Value = Result;
  struct State {};
  static constexpr bool has_state = false;
};
template <class V, class S> struct ResultParts<WithState<V, S>> {
  using Value = V;
  using State = S;
  static constexpr bool has_state = true;
};

/// Calls the forward pass of an operation, with the FirstPass if it accepts one.
template <class Operation, class Value>
[[nodiscard]] auto forward_of(const Operation& operation, SourceLocation where, std::optional<FirstPass> pass,
                              Value x) {
  if constexpr (requires { operation.forward(where, std::move(x), pass); })
    return operation.forward(where, std::move(x), pass);
  else
    return operation.forward(where, std::move(x));
}

/// The result of an operation's forward pass, whose operands are as nodes hold them.
template <class Operation, class Left, class... Right> struct ForwardResult {
  using type = decltype(std::declval<const Operation&>().forward(
      SourceLocation{}, std::declval<typename Left::Value>(), std::declval<typename Right::Value>()...));
};
template <class Operation, class X> struct ForwardResult<Operation, X> {
  using type = decltype(forward_of(std::declval<const Operation&>(), SourceLocation{},
                                   std::optional<FirstPass>(), std::declval<typename X::Value>()));
};
template <class Operation, class... Operands>
using ForwardOf = typename ForwardResult<Operation, Operands...>::type;

template <class Tensor>
using GradientOfResult = ShardedTensor<Gradient<typename Tensor::layout>, const typename Tensor::value_type,
                                       typename Tensor::target>;

/// The trace shows the operation.
template <class Operation> struct DeclaresReads {
  static constexpr bool value = requires {
    { Operation::gradient_reads_input } -> std::convertible_to<bool>;
    { Operation::gradient_reads_output } -> std::convertible_to<bool>;
  };
  static_assert(
      value,
      "operation: it must declare what its gradient reads (give it static constexpr bool gradient_reads_input and gradient_reads_output)");
};
template <class Operation> struct DeclaresReadsOfTwo {
  static constexpr bool value = requires {
    { Operation::left_gradient_reads } -> std::convertible_to<GradientReads>;
    { Operation::right_gradient_reads } -> std::convertible_to<GradientReads>;
  };
  static_assert(
      value,
      "operation: one of two operands must declare what each gradient reads (give it static constexpr detail::GradientReads left_gradient_reads and right_gradient_reads)");
};

template <class Operation, class X> struct HasGradient {
  using Parts = ResultParts<ForwardOf<Operation, X>>;
  using Y = typename Parts::Value;
  using Handle = ShardedTensor<typename Y::layout, const typename Y::value_type, typename Y::target>;
  static constexpr bool value = [] {
    if constexpr (Parts::has_state)
      return requires(const Operation& operation, GradientOfResult<Y> gradient, typename X::Value x, Handle y,
                      typename Parts::State state) {
        operation.gradient(std::move(gradient), std::move(x), std::move(y), std::move(state));
      };
    else
      return requires(const Operation& operation, GradientOfResult<Y> gradient, typename X::Value x,
                      Handle y) {
        operation.gradient(std::move(gradient), std::move(x), std::move(y));
      };
  }();
  static_assert(
      value,
      "operation: it must have a gradient to be used on a tape (give it gradient(y_gradient, x, y), with the state as a fourth argument if forward returns one)");
};
template <class Operation, class Left, class Right> struct HasTwoGradients {
  using Y = ForwardOf<Operation, Left, Right>;
  static constexpr bool value = requires(const Operation& operation, GradientOfResult<Y> gradient,
                                         typename Left::Value left, typename Right::Value right) {
    operation.left_gradient(std::move(gradient), std::move(left), std::move(right));
    operation.right_gradient(std::move(gradient), std::move(left), std::move(right));
  };
  static_assert(
      value,
      "operation: one of two operands must have both gradients to be used on a tape (give it left_gradient(y_gradient, left, right) and right_gradient(y_gradient, left, right))");
};

/// Whether a tape can record an operation on operands; what is missing gets an error sentence. An invalid
/// result has its own.
template <class Operation, class Left, class... Right> [[nodiscard]] constexpr bool records() {
  using Y = typename ResultParts<ForwardOf<Operation, Left, Right...>>::Value;
  if constexpr (any_invalid<typename Y::layout>) {
    return true;
  } else if constexpr (sizeof...(Right) == 0) {
    if constexpr (DeclaresReads<Operation>::value)
      return HasGradient<Operation, Left>::value;
    else
      return false;
  } else {
    if constexpr (DeclaresReadsOfTwo<Operation>::value)
      return HasTwoGradients<Operation, Left, Right...>::value;
    else
      return false;
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
