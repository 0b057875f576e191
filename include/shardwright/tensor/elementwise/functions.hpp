// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Nonlinear elementwise functions, with their gradients.

#include <shardwright/tensor/elementwise/function.hpp>
#include <shardwright/tensor/kernels/formulas.hpp>

#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @name Nonlinear elementwise functions
/// Of tensors and of values on a tape, as Elementwise says; the formulas are in tensor/kernels/formulas.hpp.
/// `square.into(out, x)` writes to an existing tensor.
/// @{
/// @brief GELU in its tanh form, that of GPT-2, and of PyTorch with approximate="tanh"; within 1e-3 of
/// gelu_erf.
inline constexpr Elementwise<operation::GeluTanh> gelu_tanh{};
/// @brief GELU as defined, x (1 + erf(x / sqrt(2))) / 2: that of BERT, and of PyTorch by default. Within 8
/// units in the last place; the error function by Shepherd and Laframboise (kernels/lanes/math.hpp).
inline constexpr Elementwise<operation::GeluErf> gelu_erf{};
/// @brief x sigmoid(x).
inline constexpr Elementwise<operation::Silu> silu{};
/// @brief max(x, 0); a NaN stays. The gradient at 0 is 0.
inline constexpr Elementwise<operation::Relu> relu{};
/// @brief 1 / (1 + exp(-x)).
inline constexpr Elementwise<operation::Sigmoid> sigmoid{};
/// @brief x^2.
inline constexpr Elementwise<operation::Square> square{};
/// @}

/// @name Functions that C has, too
/// Templates, because objects would be ambiguous with C's functions after `using namespace shardwright`.
/// `Elementwise<operation::Exp>().into(out, x)` writes to an existing tensor.
/// @{
/// @brief The hyperbolic tangent.
template <Operand X> [[nodiscard]] auto tanh(X&& x, SourceLocation where = SourceLocation::current()) {
  return Elementwise<operation::Tanh>()(std::forward<X>(x), where);
}
/// @brief exp(x).
template <Operand X> [[nodiscard]] auto exp(X&& x, SourceLocation where = SourceLocation::current()) {
  return Elementwise<operation::Exp>()(std::forward<X>(x), where);
}
/// @brief The natural logarithm: -infinity of 0, NaN of a negative number.
template <Operand X> [[nodiscard]] auto log(X&& x, SourceLocation where = SourceLocation::current()) {
  return Elementwise<operation::Log>()(std::forward<X>(x), where);
}
/// @brief The square root. Its gradient at 0 is infinite.
template <Operand X> [[nodiscard]] auto sqrt(X&& x, SourceLocation where = SourceLocation::current()) {
  return Elementwise<operation::Sqrt>()(std::forward<X>(x), where);
}
/// @brief The complex conjugate; linear, so Partial Sums and Avgs are allowed.
template <Operand X> [[nodiscard]] auto conj(X&& x, SourceLocation where = SourceLocation::current()) {
  return Elementwise<operation::Conjugate>()(std::forward<X>(x), where);
}
/// @}

} // namespace shardwright::inline SHARDWRIGHT_ABI
