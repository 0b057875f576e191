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
  static constexpr bool positive = false;
  template <class V> static V of(V x, V) { return x; }
};
struct ProductTerms {
  static constexpr bool positive = false;
  template <class V> static V of(V x, V y) { return x * y; }
};

namespace detail {

/// The products of an array with itself.
struct SquareTerms {
  static constexpr bool positive = true;
  template <class V> static V of(V x, V) { return x * x; }
};

/// Elements that share one partial sum.
inline constexpr std::size_t exact_block = 16384;

/// The partial sum of a block of terms.
///
/// Numbers below 2^e are cut into windows, as in the indexed sums of Demmel and Nguyen (doi
/// 10.1109/ARITH.2013.9). The running sum of a window begins at 1.5 * 2^52 units. While it stays near, an
/// addition rounds the number to units, and the sum less the one before is the rounded number, which leaves
/// the rest to the next window. The last window holds all bits of its rests, so it is an ordinary sum. After
/// a run of `steps` additions, before sums can be far, their bits are integers of units, and integers add
/// exactly. A run with larger terms, or with smaller ones than have their bits in the windows, is added
/// again: by a measured e and one more window, then number by number.
template <class Element, class Term> struct ExactBlocks {
  const Element* x;
  const Element* y;
  std::size_t count;
  ExactSum* partial;

  void operator()(std::size_t block) const {
    const SubnormalNumbers kept;
    add_block(block);
  }

private:
  static constexpr std::size_t width = shardwright::detail::lane_bytes / sizeof(double);
  static constexpr std::size_t streams = Term::positive ? 3 : 2; // as many as there are registers for
  static constexpr bool narrow = sizeof(Element) < sizeof(double) && std::is_same_v<Term, ElementTerms>;
  static constexpr int term_bits = narrow ? 24 : 53;   // at most
  static constexpr int usual_windows = narrow ? 1 : 2; // that usually hold the bits
  static constexpr int step_bits = 5;
  static constexpr std::size_t at_once = streams * width;
  static constexpr std::size_t run_size = (std::size_t{1} << step_bits) * at_once;
  static constexpr int first_bits = 51 - step_bits;  // below 2^e in the first window
  static constexpr int window_bits = 52 - step_bits; // of rests, which are at most half a unit
  static constexpr std::size_t upper_half = std::endian::native == std::endian::little ? 1 : 0;
  static constexpr std::uint64_t sign = std::uint64_t{1} << 63U;
  using Numbers = typename shardwright::detail::Vector<double, width>::type;
  using Integers = typename shardwright::detail::Vector<std::uint64_t, width>::type;
  using Signed = typename shardwright::detail::Vector<std::int64_t, width>::type;
  using Halves = typename shardwright::detail::Vector<std::uint32_t, 2 * width>::type;

  /// Windows below 2^e, and the integers of runs that fitted them.
  template <int windows> struct Windows {
    static constexpr bool measured = windows > usual_windows; // so that no term is larger
    int first;                                                // exponent of the first window's unit
    bool possible;
    std::uint64_t most_squares = 0; // bits of 4^e
    std::uint32_t least = 0;        // upper bits of a term that has no bits below the last window
    std::uint64_t bias[windows];
    Integers integers[windows] = {};
    std::uint64_t sums = 0;

    explicit Windows(int e) : first(e - first_bits) {
      const int least_exponent = first - window_bits * (windows - 1) + term_bits - 1;
      possible = least_exponent >= -1022 && first + 53 <= 1023; // normal numbers, and sums do not overflow
      if (!measured && !Term::positive)
        possible = possible && -400 < e && e < 400; // nor do squares, which do not vanish either
      if (!possible)
        return;
      most_squares = bits_of(2 * e);
      least = static_cast<std::uint32_t>(bits_of(least_exponent) >> (Term::positive ? 32U : 31U));
      for (int w = 0; w < windows; ++w)
        bias[w] = bits_of(first - window_bits * w + 52) | std::uint64_t{1} << 51U;
    }
    static std::uint64_t bits_of(int exponent) { return static_cast<std::uint64_t>(exponent + 1023) << 52U; }
    [[nodiscard]] Numbers begin(int w) const { return Numbers{} + std::bit_cast<double>(bias[w]); }
  };
  /// The running sums of a run, and what shows that terms did not fit.
  template <int windows> struct Run {
    Numbers sums[windows][streams];
    Numbers squares[streams] = {};
    Halves least[streams];
  };

  __attribute__((noinline)) void add_block(std::size_t block) const {
    const std::size_t begin = block * exact_block;
    const std::size_t end = block_end(block, exact_block, count);
    constexpr std::size_t sample = 64;
    constexpr int margin = 4; // other numbers may be larger than the sample's
    ExactSum& sum = partial[block] = ExactSum();
    Windows<usual_windows> windows(exponent_above(begin, end - begin < sample ? end : begin + sample) +
                                   margin);
    for (std::size_t i = begin; i < end; i += run_size) {
      const std::size_t stop = i + run_size < end ? i + run_size : end;
      if (!add_run(i, stop, windows))
        add_again(i, stop, sum);
    }
    add_integers(windows, sum);
    sum.normalize();
  }
  __attribute__((noinline)) void add_again(std::size_t begin, std::size_t end, ExactSum& sum) const {
    Windows<usual_windows + 1> windows(exponent_above(begin, end));
    if (add_run(begin, end, windows))
      return add_integers(windows, sum);
    for (std::size_t i = begin; i < end; ++i)
      sum.add(term(i));
  }

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
      registers = larger(registers, bits);
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
  static void add_registers(const Element* left, const Element* right, Run<windows>& run) {
    for (std::size_t s = 0; s < streams; ++s) {
      Numbers rest = as_rounded(Term::of(load(left + s * width), load(right + s * width)));
      auto bits = copied<Integers>(&rest);
      if constexpr (!Term::positive)
        bits += bits; // without the sign
      bits -= 1;      // of 0, which always fits, the largest
      const auto halves = copied<Halves>(&bits);
      run.least[s] = halves < run.least[s] ? halves : run.least[s];
      if constexpr (!Windows<windows>::measured && !Term::positive)
        run.squares[s] += rest * rest;
      for (int w = 0; w + 1 < windows; ++w) {
        const Numbers after = as_rounded(run.sums[w][s] + rest); // or -ffast-math would cancel the sum
        const Numbers rounded = as_rounded(after - run.sums[w][s]);
        run.sums[w][s] = after;
        rest = as_rounded(rest - rounded);
      }
      run.sums[windows - 1][s] += rest;
    }
  }

  /// Adds a run's terms, unless the windows do not hold all of their bits.
  template <int windows>
  [[nodiscard]] bool add_run(std::size_t begin, std::size_t end, Windows<windows>& to) const {
    if (!to.possible)
      return false;
    Run<windows> run;
    for (std::size_t s = 0; s < streams; ++s) {
      run.least[s] = ~Halves{};
      for (int w = 0; w < windows; ++w)
        run.sums[w][s] = w + 1 < windows ? to.begin(w) : Numbers{};
    }
    std::size_t i = begin;
    for (; i + at_once <= end; i += at_once)
      add_registers(x + i, y + i, run);
    if (i < end) { // zeros fill the registers
      Element left[at_once] = {};
      Element right[at_once] = {};
      for (std::size_t k = 0; i + k < end; ++k) {
        left[k] = x[i + k];
        right[k] = y[i + k];
      }
      add_registers(left, right, run);
    }
    if (!fits(run, to))
      return false;
    for (std::size_t s = 0; s < streams; ++s)
      for (int w = 0; w < windows; ++w) {
        const Numbers sum = as_rounded(w + 1 < windows ? run.sums[w][s] : run.sums[w][s] + to.begin(w));
        to.integers[w] += copied<Integers>(&sum);
      }
    to.sums += streams;
    return true;
  }
  /// Whether no term was too large or too small.
  template <int windows> [[nodiscard]] static bool fits(const Run<windows>& run, const Windows<windows>& to) {
    Halves least = run.least[0];
    Integers outside{};
    Integers squares{};
    for (std::size_t s = 0; s < streams; ++s) {
      least = run.least[s] < least ? run.least[s] : least;
      if constexpr (Term::positive) // the sum only grows, and still has its exponent
        outside |= (copied<Integers>(&run.sums[0][s]) ^ to.bias[0]) >> 52U;
      else if constexpr (!Windows<windows>::measured) // bits are ordered as the positive numbers are
        squares = larger(squares, copied<Integers>(&run.squares[s]));
    }
    bool fit = true;
    for (std::size_t l = 0; l < width; ++l)
      fit &= (least[2 * l + upper_half] >= to.least) & (outside[l] == 0) & (squares[l] <= to.most_squares);
    return fit;
  }
  template <int windows> static void add_integers(const Windows<windows>& from, ExactSum& sum) {
    if (from.sums == 0)
      return;
    for (int w = 0; w < windows; ++w)
      add_integers(from.integers[w], from.sums * from.bias[w], from.first - window_bits * w, sum);
  }
  /// Adds (integer - bias) 2^exponent for every lane, in halves that cannot overflow.
  static void add_integers(const Integers& registers, std::uint64_t bias, int exponent, ExactSum& sum) {
    const Integers integers = registers - bias;
    const Integers low = integers & 0xffffffffU;
    const Signed high = Signed(integers) >> 32;
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
  const auto add_blocks = [&](auto terms) {
    run("sw::exact_sum", execution, blocks,
        detail::ExactBlocks<typename X::non_const_value_type, decltype(terms)>{
            left.data, right.data, left.size, blocks == 1 ? result : workspace});
  };
  if (std::is_same_v<Terms, ProductTerms> && right.data == left.data)
    add_blocks(detail::SquareTerms());
  else
    add_blocks(Terms());
  if (blocks != 1)
    run("sw::exact_sum", execution, 1, detail::SumOfExact{workspace, blocks, result});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
