// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Roundings, and the formats that C++ has no type for.

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ptx {

enum class Rounding : std::uint8_t { nearest, zero, down, up, nearest_away };

/// @brief The processor rounds so until the end of the scope.
class RoundingScope {
public:
  explicit RoundingScope(Rounding rounding) : before_(std::fegetround()) {
    constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
    std::fesetround(modes[static_cast<int>(rounding)]);
  }
  ~RoundingScope() { std::fesetround(before_); }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

private:
  int before_;
};

/// @brief A format of sign, exponent and fraction.
struct Format {
  int exponent_bits, fraction_bits;
  bool has_infinity =
      true; ///< Otherwise the largest exponent holds numbers too, all but the last one (e4m3).

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

inline constexpr Format format_f16{5, 10}, format_bf16{8, 7}, format_tf32{8, 10}, format_e4m3{4, 3, false},
    format_e5m2{5, 2};

/// @brief The bits of a value in a format, rounded once. Not a number gives the format's canonical one of
/// PTX: all bits of exponent and fraction set.
/// @param finite clamps to the largest number, as .satfinite.
inline std::uint32_t encode(double value, Format format, Rounding rounding = Rounding::nearest,
                            bool finite = false) {
  const std::uint32_t sign = std::signbit(value) ? 1U << (format.exponent_bits + format.fraction_bits) : 0;
  const std::uint32_t infinity = ((1U << format.exponent_bits) - 1) << format.fraction_bits;
  const std::uint32_t not_a_number = infinity | ((1U << format.fraction_bits) - 1);
  const std::uint32_t largest = format.has_infinity ? infinity - 1 : not_a_number - 1;
  if (std::isnan(value))
    return not_a_number;
  const double size = std::fabs(value);
  if (size == 0)
    return sign;
  const bool away = rounding == (std::signbit(value) ? Rounding::down : Rounding::up);
  const bool toward =
      rounding == Rounding::zero || rounding == (std::signbit(value) ? Rounding::up : Rounding::down);
  if (std::isinf(value))
    return sign | (finite || !format.has_infinity ? largest : infinity);
  // The value in units of its last place, which are powers of two: exact.
  int exponent = std::ilogb(size);
  if (exponent < 1 - format.bias())
    exponent = 1 - format.bias();
  const double units = std::ldexp(size, format.fraction_bits - exponent);
  double whole = std::floor(units);
  const double rest = units - whole;
  if (away ? rest > 0
           : !toward && (rest > 0.5 ||
                         (rest == 0.5 && (rounding == Rounding::nearest_away || std::fmod(whole, 2) != 0))))
    whole += 1;
  // A carry into the exponent comes out right, since the encoding counts on.
  const std::uint32_t hidden = 1U << format.fraction_bits;
  const auto fraction = static_cast<std::uint32_t>(whole);
  const std::uint32_t bits =
      fraction < hidden ? fraction
                        : (static_cast<std::uint32_t>(exponent + format.bias()) << format.fraction_bits) +
                              (fraction - hidden);
  if (bits <= largest)
    return sign | bits;
  return sign | (finite || toward || !format.has_infinity ? largest : infinity);
}

/// @brief The value of bits in a format.
inline double decode(std::uint32_t bits, Format format) {
  const std::uint32_t fraction = bits & ((1U << format.fraction_bits) - 1);
  const std::uint32_t exponent = bits >> format.fraction_bits & ((1U << format.exponent_bits) - 1);
  const bool negative = (bits >> (format.exponent_bits + format.fraction_bits) & 1) != 0;
  const std::uint32_t top = (1U << format.exponent_bits) - 1;
  double size = 0;
  if (exponent == top && format.has_infinity)
    size = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  else if (exponent == top && fraction == (1U << format.fraction_bits) - 1)
    size = std::numeric_limits<double>::quiet_NaN();
  else if (exponent == 0)
    size = std::ldexp(fraction, 1 - format.bias() - format.fraction_bits);
  else
    size = std::ldexp(fraction + (1U << format.fraction_bits),
                      static_cast<int>(exponent) - format.bias() - format.fraction_bits);
  return negative ? -size : size;
}

/// @brief A bfloat16 is the upper half of a float.
inline float bf16_value(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// @brief A float to the nearest bfloat16, ties to even.
inline std::uint16_t bf16_nearest(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

/// @brief A float16's value: the fraction and exponent in the place of a float's, scaled.
inline float f16_value(std::uint16_t bits) {
  const std::uint32_t moved = (bits & 0x7fffU) << 13;
  const float scaled = std::bit_cast<float>(moved) * 0x1p112F;
  const float size = moved >= 0x7c00U << 13 ? std::bit_cast<float>(moved | 0x7f800000) : scaled;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) | (bits & 0x8000U) << 16);
}

/// @brief A float to the nearest float16, ties to even.
inline std::uint16_t f16_nearest(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  const std::uint32_t exact = (size - (112U << 23) + 0xfff + (size >> 13 & 1)) >> 13;
  // Below 2^-14 the sum with a half of the right size rounds to units of 2^-24.
  const auto small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  std::uint32_t out = size < 113U << 23 ? small : exact;
  out = size >= 0x477ff000 ? 0x7c00 : out;
  return static_cast<std::uint16_t>(size > 0x7f800000 ? 0x7fff : sign | out);
}

} // namespace ptx
