// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief ExactSum: a sum of doubles without rounding, whose bits therefore do not depend on the order.

#include <shardwright/core/config.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The exact sum of any doubles: a fixed-point number wide enough for all of them (Kulisch's long
/// accumulator, doi 10.1515/9783110301793).
///
/// It consists of 64-bit integers with 32 bits of the number each, so that sums of ranks are sums of
/// integers, in any order. Room above the largest double is left for 2^78 terms: no sum of terms overflows,
/// whatever the order. Infinities and NaNs are counted.
class ExactSum {
public:
  /// 64-bit integers of which it consists.
  static constexpr std::size_t words = 72;

  ExactSum() = default;
  explicit ExactSum(double number) noexcept { add(number); }

  /// @brief Adds a number.
  void add(double number) noexcept {
    const auto bits = std::bit_cast<std::uint64_t>(number);
    const bool negative = bits >> 63U != 0;
    const auto exponent = static_cast<int>(bits >> 52U & 0x7ffU);
    const auto fraction = static_cast<std::int64_t>(bits & fraction_mask);
    if (exponent == 0x7ff) {
      ++(fraction != 0 ? nans_ : negative ? negative_infinities_ : infinities_);
      return;
    }
    const std::int64_t integer = exponent == 0 ? fraction : fraction | std::int64_t{1} << 52U;
    add_multiple(negative ? -integer : integer, exponent == 0 ? lowest : lowest + exponent - 1);
  }
  /// @brief Adds `multiple` times 2^exponent.
  /// @param exponent at least -1074, and at most 1023
  void add_multiple(std::int64_t multiple, int exponent) noexcept {
    const auto place = static_cast<unsigned>(exponent - lowest);
    std::int64_t* const digit = digits_ + place / digit_bits;
    const unsigned shift = place % digit_bits;
    const std::uint64_t low = (static_cast<std::uint64_t>(multiple) & digit_mask) << shift;
    const std::int64_t high = (multiple >> digit_bits) * (std::int64_t{1} << shift);
    digit[0] += static_cast<std::int64_t>(low & digit_mask);
    digit[1] += static_cast<std::int64_t>(low >> digit_bits) +
                static_cast<std::int64_t>(static_cast<std::uint64_t>(high) & digit_mask);
    digit[2] += high >> digit_bits;
    if (++additions_ > most_additions)
      normalize();
  }
  ExactSum& operator+=(const ExactSum& other) noexcept {
    for (std::size_t i = 0; i < digits; ++i)
      digits_[i] += other.digits_[i];
    infinities_ += other.infinities_;
    negative_infinities_ += other.negative_infinities_;
    nans_ += other.nans_;
    additions_ += other.additions_ + 1;
    if (additions_ > most_additions)
      normalize();
    return *this;
  }

  /// @brief Carries between the integers: sums of at most 2^30 normalized ones do not overflow.
  void normalize() noexcept {
    const auto [first, end] = used();
    std::int64_t carry = 0;
    for (std::size_t i = first; i + 1 < digits && (i < end || carry != 0); ++i) {
      const std::int64_t sum = digits_[i] + carry;
      carry = (sum + half_digit) >> digit_bits; // to the nearest, so that signs reach no digits above
      digits_[i] = sum - carry * 2 * half_digit;
    }
    digits_[digits - 1] += carry;
    additions_ = 0;
  }

  /// @brief The sum rounded once, to nearest, ties to even. NaN and infinities are as in any sum; a sum
  /// beyond the largest double is infinite.
  [[nodiscard]] double value() const noexcept {
    if (nans_ != 0 || (infinities_ != 0 && negative_infinities_ != 0))
      return std::numeric_limits<double>::quiet_NaN();
    if (infinities_ != 0 || negative_infinities_ != 0)
      return infinities_ != 0 ? infinite : -infinite;
    const auto [first, end] = used();
    std::int64_t number[digits]; // normalized, from `first` to `top`; the two places below it are read, too
    if (first > 0)
      number[first - 1] = number[first - 2] = 0;
    std::int64_t carry = 0;
    std::size_t top = first;
    for (std::size_t i = first; i < digits && (i < end || carry != 0); ++i) {
      const std::int64_t sum = digits_[i] + carry;
      carry = i + 1 < digits ? (sum + half_digit) >> digit_bits : 0;
      number[i] = sum - carry * 2 * half_digit;
      top = number[i] != 0 ? i : top;
    }
    if (number[top] == 0)
      return 0;
    const bool negative = number[top] < 0; // the digits below are less than one of it
    carry = 0;
    for (std::size_t i = first; i <= top; ++i) {
      const std::int64_t sum = (negative ? -number[i] : number[i]) + carry;
      carry = i < top ? sum >> digit_bits : 0;
      number[i] = sum - carry * 2 * half_digit;
    }
    while (top > first && number[top] == 0)
      --top;
    return negative ? -rounded(number, first, top) : rounded(number, first, top);
  }

private:
  static constexpr std::size_t digits = 68;
  static constexpr unsigned digit_bits = 32;
  static constexpr std::uint64_t digit_mask = 0xffffffffU;
  static constexpr std::int64_t half_digit = std::int64_t{1} << (digit_bits - 1);
  static constexpr std::uint64_t fraction_mask = (std::uint64_t{1} << 52U) - 1;
  static constexpr int lowest = -1074;                                   // the exponent of the least double
  static constexpr std::int64_t most_additions = std::int64_t{1} << 28U; // each changes a digit by under 2^34
  static constexpr double infinite = std::numeric_limits<double>::infinity();

  /// Digits beyond which all are zero, in groups of four.
  struct Range {
    std::size_t first;
    std::size_t end;
  };
  [[nodiscard]] Range used() const noexcept {
    static_assert(digits % 4 == 0);
    const auto empty = [this](std::size_t i) {
      return (digits_[i] | digits_[i + 1] | digits_[i + 2] | digits_[i + 3]) == 0;
    };
    Range range{0, digits};
    while (range.end > 4 && empty(range.end - 4))
      range.end -= 4;
    while (range.first + 4 < range.end && empty(range.first))
      range.first += 4;
    return range;
  }

  /// Digits from 0 to below 2^32 from `first`, a multiple of four, to `top`, the last that is not zero.
  [[nodiscard]] static double rounded(const std::int64_t* number, std::size_t first,
                                      std::size_t top) noexcept {
    const auto digit = [number](std::size_t i) { return static_cast<std::uint64_t>(number[i]); };
    if (top <= 1) {
      const std::uint64_t least = (top == 1 ? digit(1) << digit_bits : 0) | digit(0);
      if (least <= fraction_mask) // a subnormal number is its integer
        return std::bit_cast<double>(least);
    }
    const auto zeros = static_cast<unsigned>(std::countl_zero(digit(top) << digit_bits));
    std::uint64_t leading = (digit(top) << digit_bits | digit(top - 1)) << zeros;
    bool more = false;
    if (top > 1) {
      const std::uint64_t next = digit(top - 2) << zeros; // its high half continues the leading bits
      leading |= next >> digit_bits;
      more = (next & digit_mask) != 0;
      for (std::size_t i = first; i + 2 < top; ++i)
        more = more || number[i] != 0;
    }
    const int exponent = static_cast<int>(top * digit_bits + (digit_bits - 1 - zeros)) + lowest;
    if (exponent > 1023)
      return infinite;
    constexpr std::uint64_t half = 1U << 10U; // 53 bits of 64 are kept
    const std::uint64_t dropped = leading & (2 * half - 1);
    std::uint64_t kept = leading >> 11U;
    if (dropped > half || (dropped == half && (more || (kept & 1U) != 0)))
      ++kept; // may carry into the exponent, up to infinity
    return std::bit_cast<double>((static_cast<std::uint64_t>(exponent + 1022) << 52U) + kept);
  }

  std::int64_t digits_[digits] = {}; // least first; 2^(32 i - 1074) each
  std::int64_t infinities_ = 0;
  std::int64_t negative_infinities_ = 0;
  std::int64_t nans_ = 0;
  std::int64_t additions_ = 0; // since the digits were normalized
};
static_assert(sizeof(ExactSum) == ExactSum::words * sizeof(std::int64_t));

} // namespace shardwright::inline SHARDWRIGHT_ABI
