// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The members that a tape needs of an operation: forward pass, gradients, and what these read, with
/// an error sentence for each one that is missing.

#include <shardwright/layout/gradient.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/tape/first_pass.hpp>

#include <array>
#include <concepts>
#include <cstddef>
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
template <class Value, class State> WithState(Value, State) -> WithState<Value, State>;

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
template <class Operation, class... Values>
[[nodiscard]] auto forward_of(const Operation& operation, SourceLocation where, std::optional<FirstPass> pass,
                              Values... values) {
  if constexpr (requires { operation.forward(where, std::move(values)..., pass); })
    return operation.forward(where, std::move(values)..., pass);
  else
    return operation.forward(where, std::move(values)...);
}

/// The result of an operation's forward pass, whose operands are as nodes hold them.
template <class Operation, class... Operands>
using PartsOf = ResultParts<decltype(forward_of(std::declval<const Operation&>(), SourceLocation{},
                                                std::optional<FirstPass>(),
                                                std::declval<typename Operands::Value>()...))>;

template <class Tensor>
using ConstHandle =
    ShardedTensor<typename Tensor::layout, const typename Tensor::value_type, typename Tensor::target>;
template <class Tensor>
using GradientOfResult = ShardedTensor<Gradient<typename Tensor::layout>, const typename Tensor::value_type,
                                       typename Tensor::target>;

/// Parts of gradients that arrive later; an operation without them has none.
struct NothingLate {};
template <class Operation, class... Operands> struct LateOf { using type = NothingLate; };
template <class Operation, class... Operands>
requires requires { typename Operation::template Late<Operands...>; }
struct LateOf<Operation, Operands...> {
  using type = typename Operation::template Late<Operands...>;
};

/// Whether one call of an operation, `gradients`, computes those of all operands, in the pass of inputs.
template <class Operation>
concept GivesTogether = requires {
  Operation::gradients_read;
};

/// The values that the gradient of each operand reads.
template <class Operation, std::size_t operands>
inline constexpr std::array<GradientReads, operands> gradient_reads_of = [] {
  std::array<GradientReads, operands> out{};
  if constexpr (GivesTogether<Operation>)
    for (std::size_t i = 0; i < operands; ++i)
      out[i] = Operation::gradients_read[i < Operation::gradients_read.size() ? i : 0];
  else if constexpr (operands == 1)
    // Not an assigned list: in templates, nvcc 13.0 drops its designators.
    out[0] =
        GradientReads{.left = Operation::gradient_reads_input, .result = Operation::gradient_reads_output};
  else
    out = {Operation::left_gradient_reads, Operation::right_gradient_reads};
  return out;
}();

/// The gradient of one operand; `rest` are the operands and, of one operand, the result, then the state if
/// there is one.
template <std::size_t operand, std::size_t operands, class Operation, class G, class... Rest>
[[nodiscard]] auto gradient_of(const Operation& operation, G&& y_gradient, Rest&&... rest) {
  if constexpr (operands == 1)
    return operation.gradient(std::forward<G>(y_gradient), std::forward<Rest>(rest)...);
  else if constexpr (operand == 0)
    return operation.left_gradient(std::forward<G>(y_gradient), std::forward<Rest>(rest)...);
  else
    return operation.right_gradient(std::forward<G>(y_gradient), std::forward<Rest>(rest)...);
}

/// The type of that gradient: if the operation declares it, the body that computes it is not compiled.
template <std::size_t operand, std::size_t operands, class Operation, class... Arguments>
[[nodiscard]] constexpr auto type_of_gradient() {
  if constexpr (operands == 1)
    return std::type_identity<decltype(std::declval<const Operation&>().gradient(
        std::declval<Arguments>()...))>{};
  else if constexpr (operand == 0)
    return std::type_identity<decltype(std::declval<const Operation&>().left_gradient(
        std::declval<Arguments>()...))>{};
  else
    return std::type_identity<decltype(std::declval<const Operation&>().right_gradient(
        std::declval<Arguments>()...))>{};
}

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
      "operation: one of two operands must declare what each gradient reads (give it static constexpr GradientReads left_gradient_reads and right_gradient_reads)");
};

template <class Operation, class X> struct HasGradient {
  using Parts = PartsOf<Operation, X>;
  using Y = ConstHandle<typename Parts::Value>;
  static constexpr bool value = [] {
    if constexpr (Parts::has_state)
      return requires(const Operation& operation, GradientOfResult<Y> gradient, typename X::Value x, Y y,
                      typename Parts::State state) {
        operation.gradient(std::move(gradient), std::move(x), std::move(y), state);
      };
    else
      return requires(const Operation& operation, GradientOfResult<Y> gradient, typename X::Value x, Y y) {
        operation.gradient(std::move(gradient), std::move(x), std::move(y));
      };
  }();
  static_assert(
      value,
      "operation: it must have a gradient to be used on a tape (give it gradient(y_gradient, x, y), with the state as a fourth argument if forward returns one)");
};
template <class Operation, class Left, class Right> struct HasTwoGradients {
  using Y = typename PartsOf<Operation, Left, Right>::Value;
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
template <class Operation, class... Operands> [[nodiscard]] constexpr bool records() {
  using Y = typename PartsOf<Operation, Operands...>::Value;
  if constexpr (any_invalid<typename Y::layout> || GivesTogether<Operation>) {
    return true;
  } else if constexpr (sizeof...(Operands) == 1) {
    if constexpr (DeclaresReads<Operation>::value)
      return HasGradient<Operation, Operands...>::value;
    else
      return false;
  } else {
    if constexpr (DeclaresReadsOfTwo<Operation>::value)
      return HasTwoGradients<Operation, Operands...>::value;
    else
      return false;
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
