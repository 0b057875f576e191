// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The number of a formula: a register with the arithmetic of a single number.

#include <shardwright/core/config.hpp>
#include <shardwright/tensor/kernels/lanes/math.hpp>
#include <shardwright/tensor/kernels/lanes/registers.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

#if defined(__clang__)
#pragma clang fp contract(fast) // else a * b + c would not be fused, since each operator is a function
#endif

/// @brief The x of a formula: a register of numbers, or a single one. Constants of any type are rounded to
/// `Number`.
///
/// Functions of Values are found through their argument: exp, log, sqrt, tanh, sigmoid, normal_below,
/// normal_density, conj, and chosen(mask, a, b) with the mask of a comparison. A formula is a template of its
/// type: `template <class V> V operator()(V x) const { return x * sigmoid(x); }`.
template <class Number, std::size_t count = detail::lane_count<Number>> struct Value {
  using Register = detail::Lanes<Number>;
  using Held = std::conditional_t<count == 1, Number, Register>;
  /// The result of a comparison.
  struct Mask {
    decltype(Held() < Held()) set;
  };
  Held lanes;

  Value() = default;
  template <class Constant>
  requires std::is_arithmetic_v<Constant> SHARDWRIGHT_FUNCTION Value(Constant number)
      : lanes(static_cast<Number>(number) - Held{}) {} // keeps the sign of zero, unlike an addition
  SHARDWRIGHT_FUNCTION static Value of(Held lanes) {
    Value value;
    value.lanes = lanes;
    return value;
  }

  SHARDWRIGHT_FUNCTION friend Value conj(Value a) { return a; }
  SHARDWRIGHT_FUNCTION friend Value operator-(Value a) { return of(-a.lanes); }
  SHARDWRIGHT_FUNCTION friend Value operator+(Value a, Value b) {
    if constexpr (wraps)
      return wrapped(bits(a) + bits(b));
    else
      return of(a.lanes + b.lanes);
  }
  SHARDWRIGHT_FUNCTION friend Value operator-(Value a, Value b) {
    if constexpr (wraps)
      return wrapped(bits(a) - bits(b));
    else
      return of(a.lanes - b.lanes);
  }
  SHARDWRIGHT_FUNCTION friend Value operator*(Value a, Value b) {
    if constexpr (wraps)
      return wrapped(bits(a) * bits(b));
    else
      return of(a.lanes * b.lanes);
  }
  SHARDWRIGHT_FUNCTION friend Value operator/(Value a, Value b) { return of(a.lanes / b.lanes); }
  SHARDWRIGHT_FUNCTION friend Mask operator<(Value a, Value b) { return {a.lanes < b.lanes}; }
  SHARDWRIGHT_FUNCTION friend Mask operator>(Value a, Value b) { return {a.lanes > b.lanes}; }
  SHARDWRIGHT_FUNCTION friend Mask operator<=(Value a, Value b) { return {a.lanes <= b.lanes}; }
  SHARDWRIGHT_FUNCTION friend Mask operator>=(Value a, Value b) { return {b.lanes <= a.lanes}; }
  /// a where the mask is set, else b.
  SHARDWRIGHT_FUNCTION friend Value chosen(Mask mask, Value a, Value b) {
    return of(detail::chosen(mask.set, a.lanes, b.lanes));
  }

  SHARDWRIGHT_FUNCTION friend Value exp(Value x) {
    return x.each([](Register r) { return detail::exp_of<Number>(r); });
  }
  SHARDWRIGHT_FUNCTION friend Value log(Value x) {
    return x.each([](Register r) { return detail::log_of<Number>(r); });
  }
  SHARDWRIGHT_FUNCTION friend Value sqrt(Value x) {
    return x.each([](Register r) { return detail::sqrt_of<Number>(r); });
  }
  SHARDWRIGHT_FUNCTION friend Value tanh(Value x) {
    return x.each([](Register r) { return detail::tanh_of<Number>(r); });
  }
  SHARDWRIGHT_FUNCTION friend Value sigmoid(Value x) {
    return x.each([](Register r) { return detail::sigmoid_of<Number>(r); });
  }
  /// The part of the standard normal distribution below x.
  SHARDWRIGHT_FUNCTION friend Value normal_below(Value x) {
    return x.each([](Register r) { return detail::NormalDistribution<Number>(r).below; });
  }
  /// The density of the standard normal distribution at x.
  SHARDWRIGHT_FUNCTION friend Value normal_density(Value x) {
    return x.each([](Register r) { return detail::NormalDistribution<Number>(r).density; });
  }

private:
  // Signed integers wrap modulo 2^n, as conversions do: arithmetic is on their bits.
  static constexpr bool wraps = std::is_integral_v<Number> && std::is_signed_v<Number>;
  using Bits = std::conditional_t<sizeof(Number) == 8, std::uint64_t, std::uint32_t>;
  using HeldBits = std::conditional_t<count == 1, Bits, detail::Lanes<Bits>>;
  SHARDWRIGHT_FUNCTION static HeldBits bits(Value value) { return detail::as_bits<HeldBits>(value.lanes); }
  SHARDWRIGHT_FUNCTION static Value wrapped(HeldBits result) { return of(detail::as_bits<Held>(result)); }

  template <class Function> SHARDWRIGHT_FUNCTION Value each(const Function& function) const {
    if constexpr (std::is_same_v<Held, Register>)
      return of(function(lanes));
    else
      return of(detail::largest_of<Number>(function(detail::broadcast<Number>(lanes)))); // all are equal
  }
};

#if defined(__clang__)
#pragma clang fp contract(on)
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
