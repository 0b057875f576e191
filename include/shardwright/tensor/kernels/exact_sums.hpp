// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Exact sums of the elements of tensors, or of products, on a host: their bits do not depend on how
/// the elements are cut into blocks.

#include <shardwright/core/exact_sum.hpp>
#include <shardwright/core/vector_lanes.hpp>
#include <shardwright/tensor/kernels/lanes/rounded.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief The terms of an exact sum: elements of one array, or products of two, each rounded to double.
struct ElementTerms {
  template <class V> static V of(V x, V) { return x; }
};
struct ProductTerms {
  template <class V> static V of(V x, V y) { return x * y; }
};

namespace detail {

/// Elements that share one partial sum.
inline constexpr std::size_t exact_block = 16384;

/// The partial sum of a block of terms.
///
/// Numbers below 2^e are cut into windows of 51 bits below e, as in the indexed sums of Demmel and Nguyen
/// (doi 10.1109/ARITH.2013.9): adding 1.5 * 2^52 units to a number rounds it to a multiple of the unit, whose
/// bits are then an integer. Integers add exactly. Terms that are larger, or have bits below the last window,
/// show in the bits, and the block is added again: by a measured e and one more window, then number by
/// number.
template <class Element, class Term> struct ExactBlocks {
  const Element* x;
  const Element* y;
  std::size_t count;
  ExactSum* partial;

  void operator()(std::size_t block) const {
    const std::size_t begin = block * exact_block;
    const std::size_t end = block_end(block, exact_block, count);
    constexpr std::size_t sample = 64;
    constexpr int margin = 6; // other numbers may be larger than the sample's
    ExactSum& sum = partial[block] = ExactSum();
    const int guess = exponent_above(begin, end - begin < sample ? end : begin + sample) + margin;
    if (!add_windows<usual_windows>(begin, end, guess, sum) &&
        !add_windows<usual_windows + 1>(begin, end, exponent_above(begin, end), sum))
      for (std::size_t i = begin; i < end; ++i)
        sum.add(term(i));
    sum.normalize();
  }

private:
  static constexpr std::size_t width = shardwright::detail::lane_bytes / sizeof(double);
  static constexpr std::size_t streams = 2;
  static constexpr bool narrow = sizeof(Element) < sizeof(double) && std::is_same_v<Term, ElementTerms>;
  static constexpr int usual_windows = narrow ? 1 : 2; // that usually hold the bits
  static constexpr int window_bits = 51;
  static_assert(exact_block / (width * streams) <= std::size_t{1} << (63 - window_bits)); // a lane's sum fits
  static constexpr std::uint64_t sign = std::uint64_t{1} << 63U;
  using Numbers = typename shardwright::detail::Vector<double, width>::type;
  using Integers = typename shardwright::detail::Vector<std::uint64_t, width>::type;
  using Signed = typename shardwright::detail::Vector<std::int64_t, width>::type;

  /// Integers of the terms that were added, and what shows that some did not fit.
  template <int windows> struct Sums {
    Integers integers[windows][streams] = {};
    Integers outside[streams] = {};
    Integers rest[streams] = {};
  };

  [[nodiscard]] double term(std::size_t i) const {
    return Term::of(static_cast<double>(x[i]), static_cast<double>(y[i]));
  }
  /// The least e with |term| < 2^e for all terms; above 1024 if one is not finite.
  [[nodiscard]] int exponent_above(std::size_t begin, std::size_t end) const {
    Integers registers{};
    std::size_t i = begin;
    for (; i + width <= end; i += width) {
      const Numbers terms = Term::of(load(x + i), load(y + i));
      const Integers bits = copied<Integers>(&terms) & ~sign;
      registers = bits > registers ? bits : registers;
    }
    std::uint64_t largest = 0;
    for (std::size_t l = 0; l < width; ++l)
      largest = registers[l] > largest ? registers[l] : largest;
    for (; i < end; ++i) {
      const std::uint64_t bits = std::bit_cast<std::uint64_t>(term(i)) & ~sign;
      largest = bits > largest ? bits : largest;
    }
    return static_cast<int>(largest >> 52U) - 1022;
  }
  static Numbers load(const Element* from) {
    if constexpr (std::is_same_v<Element, double>) {
      return copied<Numbers>(from);
    } else if constexpr (std::is_same_v<Element, float>) {
      const auto numbers = copied<typename shardwright::detail::Vector<float, width>::type>(from);
#if defined(__AVX512F__) && !defined(__clang__) // g++ would convert halves
      typedef double Wide __attribute__((vector_size(64)));
      return Numbers(__builtin_ia32_cvtps2pd512_mask(numbers, Wide{}, static_cast<unsigned char>(-1), 4));
#else
      return __builtin_convertvector(numbers, Numbers);
#endif
    } else {
      double wide[width];
      for (std::size_t i = 0; i < width; ++i)
        wide[i] = static_cast<double>(from[i]);
      return copied<Numbers>(wide);
    }
  }
  template <class To, class From> static To copied(const From* from) {
    To to;
    __builtin_memcpy(&to, from, sizeof(To));
    return to;
  }

  template <int windows>
  static void add_register(const Element* left, const Element* right, const Numbers* rounders,
                           std::size_t stream, Sums<windows>& sums) {
    Numbers rest = as_rounded(Term::of(load(left), load(right)));
    for (int w = 0; w < windows; ++w) {
      const Numbers shifted = as_rounded(rest + rounders[w]); // or -ffast-math would cancel the rounder
      const Numbers rounded = as_rounded(shifted - rounders[w]);
      const auto bits = copied<Integers>(&shifted);
      sums.integers[w][stream] += bits;
      if (w == 0)
        sums.outside[stream] |= bits ^ copied<Integers>(rounders);
      if (w + 1 == windows)
        sums.rest[stream] |= copied<Integers>(&rounded) ^ copied<Integers>(&rest);
      rest -= rounded;
    }
  }

  /// Adds the block's terms below 2^e, unless the windows do not hold all of their bits.
  template <int windows>
  [[nodiscard]] bool add_windows(std::size_t begin, std::size_t end, int e, ExactSum& sum) const {
    constexpr int lowest = -1074; // there are no bits below it
    constexpr int last = window_bits * (windows - 1);
    const int first = e - window_bits < lowest + last ? lowest + last : e - window_bits;
    if (first + 53 > 1023)
      return false; // the largest doubles: a sum with the rounder would overflow
    Numbers rounders[windows];
    std::uint64_t bias[windows];
    for (int w = 0; w < windows; ++w) {
      bias[w] = static_cast<std::uint64_t>(first - window_bits * w + 52 + 1023) << 52U | std::uint64_t{1}
                                                                                             << 51U;
      rounders[w] = Numbers{} + std::bit_cast<double>(bias[w]);
    }
    Sums<windows> sums;
    std::uint64_t registers = 0; // of each stream
    std::size_t i = begin;
    for (; i + streams * width <= end; i += streams * width, ++registers)
      for (std::size_t s = 0; s < streams; ++s)
        add_register(x + i + s * width, y + i + s * width, rounders, s, sums);
    if (i < end) {
      for (std::size_t s = 0; s < streams; ++s, i += width)
        if (i + width <= end) {
          add_register(x + i, y + i, rounders, s, sums);
        } else { // zeros fill the register
          Element left[width] = {};
          Element right[width] = {};
          for (std::size_t k = 0; i + k < end; ++k) {
            left[k] = x[i + k];
            right[k] = y[i + k];
          }
          add_register(left, right, rounders, s, sums);
        }
      ++registers;
    }
    if (any_bits(sums.outside) >> 52U != 0 || any_bits(sums.rest) << 1U != 0) // the rest of -0 is -0
      return false;
    for (int w = 0; w < windows; ++w)
      add_integers(sums.integers[w], registers * bias[w], first - window_bits * w, sum);
    return true;
  }
  [[nodiscard]] static std::uint64_t any_bits(const Integers (&registers)[streams]) {
    std::uint64_t any = 0;
    for (const Integers& one : registers)
      for (std::size_t l = 0; l < width; ++l)
        any |= one[l];
    return any;
  }
  /// Adds (integer - bias) 2^exponent for every lane, in halves that cannot overflow.
  static void add_integers(const Integers (&registers)[streams], std::uint64_t bias, int exponent,
                           ExactSum& sum) {
    Integers low{};
    Signed high{};
    for (const Integers& one : registers) {
      const Integers integers = one - bias;
      low += integers & 0xffffffffU;
      high += Signed(integers) >> 32;
    }
    std::int64_t low_sum = 0;
    std::int64_t high_sum = 0;
    for (std::size_t l = 0; l < width; ++l) {
      low_sum += static_cast<std::int64_t>(low[l]);
      high_sum += high[l];
    }
    sum.add_multiple(low_sum, exponent);
    sum.add_multiple(high_sum, exponent + 32);
  }
};

struct SumOfExact {
  const ExactSum* partial;
  std::size_t count;
  ExactSum* result;
  void operator()(std::size_t) const {
    *result = ExactSum();
    for (std::size_t i = 0; i < count; ++i)
      *result += partial[i];
    result->normalize();
  }
};

} // namespace detail

/// @brief Partial sums of exact_sum.
[[nodiscard]] constexpr std::size_t exact_sum_workspace(std::size_t count) {
  return blocks_of(count, detail::exact_block);
}

/// @brief result[0] = the exact sum of terms of contiguous views of equal size, normalized.
/// @tparam Terms     ElementTerms, which does not read y, or ProductTerms
/// @param workspace  ExactSum [exact_sum_workspace(size)]
/// @throws InvalidArgument for views of different sizes, or that are not contiguous.
template <class Terms, class Execution, KernelView X, KernelView Y>
void exact_sum(const Execution& execution, const X& x, const Y& y, ExactSum* result, ExactSum* workspace) {
  static_assert(runs_on_host<Execution>);
  const auto left = flat_span_of(x, "exact_sum");
  const auto right = flat_span_of(y, "exact_sum");
  require(left.size == right.size, "exact_sum", "both views must have the same size.");
  const std::size_t blocks = exact_sum_workspace(left.size);
  moves("sw::exact_sum", execution, x, right.data == left.data ? 0 : detail::bytes_of(y));
  run("sw::exact_sum", execution, blocks,
      detail::ExactBlocks<typename X::non_const_value_type, Terms>{left.data, right.data, left.size,
                                                                   blocks == 1 ? result : workspace});
  if (blocks != 1)
    run("sw::exact_sum", execution, 1, detail::SumOfExact{workspace, blocks, result});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
