// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief bfloat16 and float16: two-byte formats for storage and messages; arithmetic is done in float.

#include <shardwright/core/config.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Same bits, another type of the same size; constant expressions for numbers, not for vectors.
template <class To, class From> SHARDWRIGHT_FUNCTION constexpr To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  if constexpr (std::is_arithmetic_v<From>) {
    return __builtin_bit_cast(To, from);
  } else {
    To to{};
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
  }
}

/// A double as a float whose last bit is 1 if it is inexact, so that rounding the float to fewer digits is
/// rounding the double once (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums").
SHARDWRIGHT_FUNCTION constexpr float rounded_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const std::uint32_t bits = same_bits<std::uint32_t>(nearest);
  const double exact = static_cast<double>(nearest);
  if (exact == value || value != value || (bits & 1u) != 0)
    return nearest;
  const bool too_large = value < 0 ? exact < value : exact > value;
  return same_bits<float>(too_large ? bits - 1 : bits + 1);
}

} // namespace detail

/// @brief Format of 8 exponent bits and 7 stored digits: the upper half of a float.
///
/// The functions of a format take one word or number, or a vector of them. They use integer operations,
/// because AVX512-BF16 treats subnormal numbers as zero; host and device give the same bits.
struct Bfloat16 {
  static constexpr int stored_digits = 7;
  static constexpr int max_exponent = 128;

  /// @brief The words whose lower halves are the nearest 16-bit numbers, ties to even; a NaN stays one.
  template <class Words, class Floats>
  SHARDWRIGHT_FUNCTION static constexpr Words narrow(const Floats& value) {
    const Words bits = detail::same_bits<Words>(value);
    const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16; // may carry up to infinity
    const Words quiet = (bits >> 16) | 0x40u;
    return (bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded;
  }
  /// @brief The numbers whose 16 bits the words hold.
  template <class Floats, class Words> SHARDWRIGHT_FUNCTION static constexpr Floats widen(const Words& bits) {
    return detail::same_bits<Floats>(bits << 16);
  }
};

/// @brief Format of 5 exponent bits and 10 stored digits (IEEE 754 binary16); as Bfloat16.
struct Float16 {
  static constexpr int stored_digits = 10;
  static constexpr int max_exponent = 16;

  template <class Words, class Floats>
  SHARDWRIGHT_FUNCTION static constexpr Words narrow(const Floats& value) {
    const Words bits = detail::same_bits<Words>(value);
    const Words magnitude = bits & 0x7fffffffu;
    const Words normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Adding 1/2 leaves the multiple of 2^-24 in the last bits, rounded by the addition.
    const Floats shifted = detail::same_bits<Floats>(magnitude) + 0.5f;
    const Words subnormal = detail::same_bits<Words>(shifted) - (126u << 23);
    const Words infinite = magnitude - magnitude + 0x7c00u;
    const Words quiet = infinite | 0x200u | ((bits >> 13) & 0x3ffu);
    const Words finite = magnitude < (113u << 23) ? subnormal : normal;
    const Words number = magnitude < (143u << 23) ? finite : infinite;
    return (magnitude > 0x7f800000u ? quiet : number) | ((bits >> 16) & 0x8000u);
  }
  template <class Floats, class Words> SHARDWRIGHT_FUNCTION static constexpr Floats widen(const Words& bits) {
    const Words digits = (bits & 0x7fffu) << 13;
    const Words normal = digits + (112u << 23);
    const Floats shifted = detail::same_bits<Floats>(digits + (113u << 23)) - 0x1p-14f;
    const Words subnormal = detail::same_bits<Words>(shifted);
    const Words special = digits + (224u << 23);
    const Words finite = digits < (1u << 23) ? subnormal : normal;
    const Words number = digits < (31u << 23) ? finite : special;
    return detail::same_bits<Floats>(number | ((bits & 0x8000u) << 16));
  }
};

/// @brief A floating-point number of two bytes, rounded to nearest, ties to even.
///
/// It converts to float implicitly, but from another number only by a cast: sums and products of such numbers
/// are floats, so none can be used as an accumulator by accident.
template <class Format> class LowPrecision {
public:
  using format = Format;

  LowPrecision() = default;
  /// @brief The nearest 16-bit number; a double is rounded once.
  template <class Number>
  requires(std::is_convertible_v<Number, float> && !std::is_same_v<Number, LowPrecision>) SHARDWRIGHT_FUNCTION
      explicit constexpr LowPrecision(Number value)
      : bits_(static_cast<std::uint16_t>(Format::template narrow<std::uint32_t>(as_float(value)))) {}

  /// @brief The same number, exactly.
  SHARDWRIGHT_FUNCTION constexpr operator float() const { // NOLINT(google-explicit-constructor): it is exact
    return Format::template widen<float>(std::uint32_t{bits_});
  }

  /// @brief The number with these bits.
  [[nodiscard]] SHARDWRIGHT_FUNCTION static constexpr LowPrecision from_bits(std::uint16_t bits) {
    LowPrecision out{};
    out.bits_ = bits;
    return out;
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::uint16_t bits() const { return bits_; }

private:
  template <class Number> SHARDWRIGHT_FUNCTION static constexpr float as_float(Number value) {
    if constexpr (std::is_same_v<Number, float> || !std::is_arithmetic_v<Number>)
      return value;
    else
      return detail::rounded_to_odd(static_cast<double>(value));
  }

  std::uint16_t bits_;
};

/// @brief The range of float with 8 binary digits.
using bfloat16 = LowPrecision<Bfloat16>;
/// @brief 11 binary digits; at most 65504, so that gradients need a loss scale.
using float16 = LowPrecision<Float16>;

} // namespace shardwright::inline SHARDWRIGHT_ABI

/// @brief The limits of bfloat16 and float16.
template <class Format>
class std::numeric_limits<shardwright::LowPrecision<Format>> : public std::numeric_limits<float> {
  using Number = shardwright::LowPrecision<Format>;
  static constexpr unsigned infinite = ((0x8000u >> Format::stored_digits) - 1u) << Format::stored_digits;
  static constexpr Number of(unsigned bits) { return Number::from_bits(static_cast<std::uint16_t>(bits)); }

public:
  static constexpr int digits = Format::stored_digits + 1;
  static constexpr int digits10 = (digits - 1) * 3 / 10;
  static constexpr int max_digits10 = 2 + digits * 3 / 10;
  static constexpr int max_exponent = Format::max_exponent;
  static constexpr int min_exponent = 3 - max_exponent;
  static constexpr int max_exponent10 = max_exponent * 3 / 10;
  static constexpr int min_exponent10 = -((1 - min_exponent) * 3 / 10);

  static constexpr Number min() noexcept { return of(1u << Format::stored_digits); }
  static constexpr Number max() noexcept { return of(infinite - 1u); }
  static constexpr Number lowest() noexcept { return of(0x8000u | (infinite - 1u)); }
  static constexpr Number epsilon() noexcept { return Number(1.0 / (1u << Format::stored_digits)); }
  static constexpr Number round_error() noexcept { return Number(0.5); }
  static constexpr Number infinity() noexcept { return of(infinite); }
  static constexpr Number quiet_NaN() noexcept { return of(infinite | 1u << (Format::stored_digits - 1)); }
  static constexpr Number signaling_NaN() noexcept { return of(infinite | 1u); }
  static constexpr Number denorm_min() noexcept { return of(1u); }
};
