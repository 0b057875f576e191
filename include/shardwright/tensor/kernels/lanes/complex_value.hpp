// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The number of a formula of complex elements: two reals with the arithmetic of a complex number.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/tensor/kernels/lanes/value.hpp>

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

#if defined(__clang__)
#pragma clang fp contract(fast)
#endif

/// @brief The z of a formula. It reads an element as two reals, because a device cannot call the functions of
/// std::complex, and a host's product would call a function for a NaN.
template <class Number, std::size_t count>
requires ComplexElement<Number>
struct Value<Number, count> {
  using Real = RealPart<Number>;
  Real re;
  Real im;

  Value() = default;
  template <class Constant>
  requires std::is_arithmetic_v<Constant> SHARDWRIGHT_FUNCTION Value(Constant number)
      : re(static_cast<Real>(number)), im(0) {}
  template <ComplexElement Constant>
  SHARDWRIGHT_FUNCTION Value(const Constant& number)
      : re(static_cast<Real>(shardwright::detail::as_parts(&number)[0])),
        im(static_cast<Real>(shardwright::detail::as_parts(&number)[1])) {}
  SHARDWRIGHT_FUNCTION static Value of(Real re, Real im) {
    Value value;
    value.re = re;
    value.im = im;
    return value;
  }
  SHARDWRIGHT_FUNCTION static Value of(const Number& number) { return Value(number); }
  SHARDWRIGHT_FUNCTION void store(Number* to) const {
    Real* const parts = shardwright::detail::as_parts(to);
    parts[0] = re;
    parts[1] = im;
  }

  SHARDWRIGHT_FUNCTION friend Value conj(Value a) { return of(a.re, -a.im); }
  SHARDWRIGHT_FUNCTION friend Value operator-(Value a) { return of(-a.re, -a.im); }
  SHARDWRIGHT_FUNCTION friend Value operator+(Value a, Value b) { return of(a.re + b.re, a.im + b.im); }
  SHARDWRIGHT_FUNCTION friend Value operator-(Value a, Value b) { return of(a.re - b.re, a.im - b.im); }
  SHARDWRIGHT_FUNCTION friend Value operator*(Value a, Value b) {
    return of(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
  }
  /// Without squares, which would overflow (Smith, Algorithm 116, CACM 5, 1962).
  SHARDWRIGHT_FUNCTION friend Value operator/(Value a, Value b) {
    const bool wide = magnitude(b.re) >= magnitude(b.im);
    const Real ratio = wide ? b.im / b.re : b.re / b.im;
    const Real divisor = wide ? b.re + ratio * b.im : b.re * ratio + b.im;
    return wide ? of((a.re + a.im * ratio) / divisor, (a.im - a.re * ratio) / divisor)
                : of((a.re * ratio + a.im) / divisor, (a.im * ratio - a.re) / divisor);
  }

private:
  SHARDWRIGHT_FUNCTION static Real magnitude(Real x) { return x < 0 ? -x : x; }
};

#if defined(__clang__)
#pragma clang fp contract(on)
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
