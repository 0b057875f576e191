// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Sums, products and quotients of a tensor and a plain number, with their gradients.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/elementwise/number.hpp>
#include <shardwright/tensor/kernels/terms.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The gradient of an operand x beside a number n.
enum class NumberSlope : std::uint8_t {
  one,
  minus_one,
  number,
  of_quotient ///< n / x: -n / x^2
};

struct TimesNumber {
  static constexpr std::string_view name = "scale";
  static constexpr const char* what = "factor";
  static constexpr NumberSlope slope = NumberSlope::number;
  template <class L> using Layout = ElementwiseLinearLayout<L>;
  template <class Value> SHARDWRIGHT_FUNCTION static Value of(Value x, Value number) { return x * number; }
};
/// Of real elements, whose factor is the inverse of the divisor.
struct OverReal : TimesNumber {
  static constexpr std::string_view name = "divide";
  static constexpr const char* what = "divisor";
};
struct PlusNumber {
  static constexpr std::string_view name = "add";
  static constexpr const char* what = "number";
  static constexpr NumberSlope slope = NumberSlope::one;
  template <class L> using Layout = ElementwiseNonlinearLayout<NumberAdded, L>;
  template <class Value> SHARDWRIGHT_FUNCTION static Value of(Value x, Value number) { return x + number; }
};
struct NumberMinus : PlusNumber {
  static constexpr std::string_view name = "subtract";
  static constexpr NumberSlope slope = NumberSlope::minus_one;
  template <class Value> SHARDWRIGHT_FUNCTION static Value of(Value x, Value number) { return number - x; }
};
struct NumberOver {
  static constexpr std::string_view name = "divide";
  static constexpr const char* what = "number";
  static constexpr NumberSlope slope = NumberSlope::of_quotient;
  template <class L> using Layout = ElementwiseNonlinearLayout<Divisor, L>;
  template <class Value> SHARDWRIGHT_FUNCTION static Value of(Value x, Value number) { return number / x; }
};
/// Of integers: rounded towards zero; the number is not 0.
struct OverWhole {
  static constexpr std::string_view name = "divide";
  static constexpr const char* what = "divisor";
  static constexpr NumberSlope slope = NumberSlope::one; // integers have none
  template <class L> using Layout = ElementwiseNonlinearLayout<RoundedQuotient, L>;
};

/// The result, and the gradient of a quotient whose divisor is x, as functions of (dy, x, number).
template <class Function> struct OfNumber {
  template <class V> SHARDWRIGHT_FUNCTION V operator()(Unread, V x, V number) const {
    return Function::of(x, number);
  }
};
struct QuotientSlope {
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V dy, V x, V number) const {
    return dy * (-number / (x * x));
  }
};

/// out = function(dy, x, number) of real elements.
template <class Function, class Dy, class Element, class Out>
void store_beside(const Function& function, const Dy& dy, const Element* x, double number, Out& out) {
  using Number = kernels::detail::OneNumber<MainElement<Element>>;
  kernels::detail::store_terms(
      "sw::with_number", out.execution(),
      kernels::detail::terms_of<Element>(function, dy, kernels::detail::Elements<Element>{x},
                                         Number{static_cast<MainElement<Element>>(number)}),
      out.local_size(), out.mutable_data(), out.local_size());
}

/// Function(x, number) of integers: it wraps modulo 2^n, as conversions to integers do.
template <class Element, class Function> struct WholeKernel {
  const Element* in;
  Element* out;
  Element number;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const { out[i] = of(in[i]); }

private:
  SHARDWRIGHT_FUNCTION Element of(Element x) const {
    using Bits = std::conditional_t<sizeof(Element) == 8, std::uint64_t, std::uint32_t>;
    if constexpr (!std::is_same_v<Function, OverWhole>)
      return static_cast<Element>(Function::of(static_cast<Bits>(x), static_cast<Bits>(number)));
    else if (std::is_signed_v<Element> &&
             number == static_cast<Element>(-1)) // the least number has no opposite
      return static_cast<Element>(Bits{0} - static_cast<Bits>(x));
    else
      return static_cast<Element>(x / number);
  }
};

/// out = Function(from, number).
template <class Function, class Element, class Out>
void with_number(const Element* from, Out& out, typename NumberBeside<Element, Layout<0>>::Value number) {
  if constexpr (RealElement<Element>)
    store_beside(OfNumber<Function>{}, kernels::detail::NoElements{}, from, number, out);
  else
    kernels::detail::run("sw::with_number", out.execution(), out.local_size(),
                         WholeKernel<Element, Function>{from, out.mutable_data(), number});
}

/// A divisor: quotients of integers need not be integers.
template <class Element> struct RealDivisor {
  static_assert(
      RealElement<Element>,
      "divide: a divisor must have floating-point elements, because a quotient of integers need not be an integer (divide by a whole number, which rounds towards zero, or use floating-point elements)");
};

} // namespace detail

namespace operation {

/// @brief A sum, product or quotient of a tensor and a number, with its gradient; in place if the operand is
/// moved in.
template <class Function, class Number = double> struct WithNumber {
  static constexpr std::string_view name = Function::name;
  static constexpr bool gradient_reads_input = Function::slope == detail::NumberSlope::of_quotient;
  static constexpr bool gradient_reads_output = false;
  Number number;
  Number given = number; ///< As the program gives it: a divisor, of which the number is the inverse.

  [[nodiscard]] std::array<GivenNumber, 1> numbers() const { return {GivenNumber(Function::what, given)}; }

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, X&& x) const {
    using Input = std::remove_cvref_t<X>;
    using L = typename Function::template Layout<typename Input::layout>;
    if constexpr (gradient_reads_input)
      static_cast<void>(detail::RealDivisor<typename Input::value_type>{});
    if constexpr (detail::any_invalid<L>) {
      return detail::ResultTensor<L, Input>(x.resources(), {});
    } else {
      auto [from, out] = detail::reuse(std::forward<X>(x), where);
      detail::with_number<Function>(from, out, number);
      return std::move(out);
    }
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(G&& y_gradient, const X& x, const Y&) const {
    using Element = typename X::value_type;
    if constexpr (Function::slope == detail::NumberSlope::one) {
      return std::remove_cvref_t<G>(std::forward<G>(y_gradient));
    } else if constexpr (gradient_reads_input) {
      auto [from, out] = detail::reuse(std::forward<G>(y_gradient));
      detail::store_beside(detail::QuotientSlope{}, kernels::detail::Elements<Element>{from}, x.data(),
                           number, out);
      return std::move(out);
    } else {
      const double factor = Function::slope == detail::NumberSlope::number ? number : -1;
      return WithNumber<detail::TimesNumber>{factor}.forward({}, std::forward<G>(y_gradient));
    }
  }
};

/// @brief factor * x with its gradient.
using Scale = WithNumber<detail::TimesNumber>;

} // namespace operation

namespace detail {

template <class Function, class X, class Number>
[[nodiscard]] auto apply_with_number(X&& x, const Number& number, SourceLocation where) {
  return apply(operation::WithNumber<Function, typename Number::Value>{number.value}, where,
               std::forward<X>(x));
}

template <class X, class Number> [[nodiscard]] auto minus_number(X&& x, const Number& number) {
  return apply(
      operation::WithNumber<PlusNumber, typename Number::Value>{number.opposite().value, number.value},
      number.where, std::forward<X>(x));
}

[[noreturn, gnu::noinline]] inline void reject_zero(SourceLocation where) {
  throw InvalidArgument("divide: integers must not be divided by 0 (check the divisor)", {.where = where});
}

template <class X, class Number> [[nodiscard]] auto over_number(X&& x, const Number& divisor) {
  using Value = typename Number::Value;
  if constexpr (Number::is_real) {
    return apply(operation::WithNumber<OverReal>{1 / divisor.value, divisor.value}, divisor.where,
                 std::forward<X>(x));
  } else {
    if (divisor.value == Value(0))
      reject_zero(divisor.where);
    return apply_with_number<OverWhole>(std::forward<X>(x), divisor, divisor.where);
  }
}

} // namespace detail

} // namespace shardwright::inline SHARDWRIGHT_ABI
