// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Arithmetic operators for tensors, values on a tape and parameters.

#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/elementwise.hpp>

#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @name Arithmetic operators add, subtract, multiply, divide and scale, with their layouts, broadcasting of
/// the right operand, gradients and errors. On a tape the sum of two values of the same layout is deferred
/// until it is read; a norm computes it in its own pass.
/// @{
template <Operand Left, Operand Right>
[[nodiscard]] auto operator+(Left&& left, Right&& right) {
  return add(std::forward<Left>(left), std::forward<Right>(right), SourceLocation{});
}
template <Operand Left, Operand Right>
[[nodiscard]] auto operator-(Left&& left, Right&& right) {
  return subtract(std::forward<Left>(left), std::forward<Right>(right), SourceLocation{});
}
template <Operand Left, Operand Right>
[[nodiscard]] auto operator*(Left&& left, Right&& right) {
  return multiply(std::forward<Left>(left), std::forward<Right>(right), SourceLocation{});
}
template <Operand Left, Operand Right>
[[nodiscard]] auto operator/(Left&& left, Right&& right) {
  return divide(std::forward<Left>(left), std::forward<Right>(right), SourceLocation{});
}
template <Operand X>
[[nodiscard]] auto operator*(double factor, X&& x) {
  return scale(std::forward<X>(x), factor, SourceLocation{});
}
template <Operand X>
[[nodiscard]] auto operator*(X&& x, double factor) {
  return scale(std::forward<X>(x), factor, SourceLocation{});
}
template <Operand X>
[[nodiscard]] auto operator/(X&& x, double divisor) {
  return scale(std::forward<X>(x), 1 / divisor, SourceLocation{});
}
template <Operand X>
[[nodiscard]] auto operator-(X&& x) {
  return scale(std::forward<X>(x), -1.0, SourceLocation{});
}
/// @}

} // namespace shardwright::inline SHARDWRIGHT_ABI
