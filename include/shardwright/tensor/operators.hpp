// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Arithmetic operators for tensors, values on a tape and parameters.

#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/elementwise.hpp>

#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @name Arithmetic operators
/// They are add, subtract, multiply, divide and scale, with their layouts, gradients and errors. On a tape
/// the sum of two values of one layout is deferred until it is read; a norm computes it in its own pass.
/// @{
template <Operand Left, Operand Right> [[nodiscard]] auto operator+(Left&& left, Right&& right) {
  return add(std::forward<Left>(left), std::forward<Right>(right), SourceLocation{});
}
template <Operand Left, Operand Right> [[nodiscard]] auto operator-(Left&& left, Right&& right) {
  return subtract(std::forward<Left>(left), std::forward<Right>(right), SourceLocation{});
}
template <Operand Left, Operand Right> [[nodiscard]] auto operator*(Left&& left, Right&& right) {
  return multiply(std::forward<Left>(left), std::forward<Right>(right), SourceLocation{});
}
template <Operand Left, Operand Right> [[nodiscard]] auto operator/(Left&& left, Right&& right) {
  return divide(std::forward<Left>(left), std::forward<Right>(right), SourceLocation{});
}
/// @}

/// @name The same with a plain number, in either order
/// A number added to a Partial does not compile, nor does a number divided by one. A tensor of integers takes
/// only whole numbers: results wrap, quotients are rounded towards zero, and it cannot be a divisor.
/// @{
template <Operand X> [[nodiscard]] auto operator*(X&& x, detail::NumberFor<X> factor) {
  return scale(std::forward<X>(x), factor, factor.where);
}
template <Operand X> [[nodiscard]] auto operator*(detail::NumberFor<X> factor, X&& x) {
  return scale(std::forward<X>(x), factor, factor.where);
}
template <Operand X> [[nodiscard]] auto operator+(X&& x, detail::NumberFor<X> number) {
  return detail::apply_with_number<detail::PlusNumber>(std::forward<X>(x), number, number.where);
}
template <Operand X> [[nodiscard]] auto operator+(detail::NumberFor<X> number, X&& x) {
  return detail::apply_with_number<detail::PlusNumber>(std::forward<X>(x), number, number.where);
}
template <Operand X> [[nodiscard]] auto operator-(X&& x, detail::NumberFor<X> number) {
  return detail::minus_number(std::forward<X>(x), number);
}
template <Operand X> [[nodiscard]] auto operator-(detail::NumberFor<X> number, X&& x) {
  return detail::apply_with_number<detail::NumberMinus>(std::forward<X>(x), number, number.where);
}
/// @throws InvalidArgument for integers divided by 0.
template <Operand X> [[nodiscard]] auto operator/(X&& x, detail::NumberFor<X> divisor) {
  return detail::over_number(std::forward<X>(x), divisor);
}
template <Operand X> [[nodiscard]] auto operator/(detail::NumberFor<X> number, X&& x) {
  static_cast<void>(detail::RealDivisor<detail::NumberFor<X>>{});
  return detail::apply_with_number<detail::NumberOver>(std::forward<X>(x), number, number.where);
}
template <Operand X> [[nodiscard]] auto operator-(X&& x) {
  return scale(std::forward<X>(x), detail::NumberFor<X>(1, SourceLocation{}).opposite(), SourceLocation{});
}
/// @}

} // namespace shardwright::inline SHARDWRIGHT_ABI
