// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Sums, products and quotients of a tensor and a plain number, as elementwise functions that hold it.

#include <shardwright/core/element.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/elementwise/function.hpp>
#include <shardwright/tensor/elementwise/number.hpp>
#include <shardwright/tensor/kernels/terms.hpp>

#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// x * number.
template <class Number> struct TimesNumber {
  static constexpr std::string_view name = "scale";
  static constexpr bool takes_integers = true;
  static constexpr bool takes_complex = true;
  template <class L> using layout = ElementwiseLinearLayout<L>;
  Number number;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return x * number; }
  template <class V> SHARDWRIGHT_FUNCTION V gradient(V dy) const { return dy * conj(V(number)); }
  [[nodiscard]] auto numbers() const { return given_numbers("factor", number); }
};

/// x / divisor of real elements, as a product.
template <class Number> struct OverReal : TimesNumber<Number> {
  static constexpr std::string_view name = "divide";
  Number divisor;
  explicit OverReal(Number by) : TimesNumber<Number>{Number(1) / by}, divisor(by) {}
  [[nodiscard]] auto numbers() const { return given_numbers("divisor", divisor); }
};

/// x / divisor of integers, rounded towards zero; the divisor is not 0.
template <class Number> struct OverWhole {
  static constexpr std::string_view name = "divide";
  static constexpr bool takes_integers = true;
  template <class L> using layout = ElementwiseNonlinearLayout<RoundedQuotient, L>;
  Number divisor;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const {
    if (std::is_signed_v<Number> && divisor == static_cast<Number>(-1))
      return V(0) - x; // the least number has no opposite: it wraps, but a division would not end well
    return x / divisor;
  }
  template <class V> SHARDWRIGHT_FUNCTION Unchanged<V> gradient(V dy) const { return dy; } // never used
  [[nodiscard]] auto numbers() const { return given_numbers("divisor", divisor); }
};

/// x + number, where the program may have given its opposite.
template <class Number> struct PlusNumber {
  static constexpr std::string_view name = "add";
  static constexpr bool takes_integers = true;
  static constexpr bool takes_complex = true;
  template <class L> using layout = ElementwiseNonlinearLayout<NumberAdded, L>;
  Number number;
  Number given = number;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return x + number; }
  template <class V> SHARDWRIGHT_FUNCTION Unchanged<V> gradient(V dy) const { return dy; }
  [[nodiscard]] auto numbers() const { return given_numbers("number", given); }
};

/// number - x.
template <class Number> struct NumberMinus {
  static constexpr std::string_view name = "subtract";
  static constexpr bool takes_integers = true;
  static constexpr bool takes_complex = true;
  template <class L> using layout = ElementwiseNonlinearLayout<NumberAdded, L>;
  Number number;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return number - x; }
  template <class V> SHARDWRIGHT_FUNCTION V gradient(V dy) const { return -dy; }
  [[nodiscard]] auto numbers() const { return given_numbers("number", number); }
};

/// number / x; see RealDivisor.
template <class Number> struct NumberOver {
  static constexpr std::string_view name = "divide";
  static constexpr bool takes_integers = true;
  static constexpr bool takes_complex = true;
  static constexpr bool slope_of_result = false;
  template <class L> using layout = ElementwiseNonlinearLayout<Divisor, L>;
  Number number;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return number / x; }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V x) const { return -(number / (x * x)); }
  [[nodiscard]] auto numbers() const { return given_numbers("number", number); }
};

/// A number that is divided by a tensor: quotients of integers need not be integers.
template <class Number> struct RealDivisor {
  static_assert(
      Number::is_rounded,
      "divide: a divisor must have floating-point elements, because a quotient of integers need not be an integer (divide by a whole number, which rounds towards zero, or use floating-point elements)");
};

/// The function that holds a number, of an operand.
template <template <class> class Function, class X, class Number>
[[nodiscard]] auto apply_with_number(X&& x, const Number& number, SourceLocation where) {
  using WithNumber = Function<typename Number::Value>;
  return Elementwise<WithNumber>{WithNumber{number.value}}(std::forward<X>(x), where);
}

template <class X, class Number> [[nodiscard]] auto minus_number(X&& x, const Number& number) {
  using Plus = PlusNumber<typename Number::Value>;
  return Elementwise<Plus>{Plus{number.opposite().value, number.value}}(std::forward<X>(x), number.where);
}

[[noreturn, gnu::noinline]] inline void reject_zero(SourceLocation where) {
  throw InvalidArgument("divide: integers must not be divided by 0 (check the divisor)", {.where = where});
}

template <class X, class Number> [[nodiscard]] auto over_number(X&& x, const Number& divisor) {
  if constexpr (Number::is_rounded) {
    return apply_with_number<OverReal>(std::forward<X>(x), divisor, divisor.where);
  } else {
    if (divisor.value == 0)
      reject_zero(divisor.where);
    return apply_with_number<OverWhole>(std::forward<X>(x), divisor, divisor.where);
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
