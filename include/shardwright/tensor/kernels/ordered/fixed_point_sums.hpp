// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Sums of rows of floats in FixedPoint, such as raw gradients of biases in reproducible training. A
/// term is a token's contribution, so neither ranks nor microbatches show in a sum.

#include <shardwright/core/fixed_point.hpp>
#include <shardwright/core/vector_lanes.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/terms.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Sets a flag, which several threads may do at once.
inline void note_fault(bool* fault) { std::atomic_ref(*fault).store(true, std::memory_order_relaxed); }

/// Adds floats to FixedPoint sums. Those that do not fit are left out and noted.
class TermAdder {
public:
  /// The lanes of a chunk.
  template <class Chunk> void add(Chunk chunk, const Lanes<float>& terms, FixedPoint* to) {
    if constexpr (requires { chunk.length; }) {
      float numbers[WholeChunk<float>::width];
      chunk.store(numbers, terms);
      add_some(numbers, chunk.length, to);
    } else {
      add_register(terms, to);
    }
  }
  /// Any number of floats.
  void add(const float* terms, std::size_t count, FixedPoint* to) {
    std::size_t i = 0;
    for (; i + WholeChunk<float>::width <= count; i += WholeChunk<float>::width)
      add_register(WholeChunk<float>{}.load(terms + i), to + i);
    add_some(terms + i, count - i, to + i);
  }
  [[nodiscard]] bool all_fit() const {
    bool any = one_unfit_;
    std::int32_t lanes[2 * width];
    __builtin_memcpy(lanes, &unfit_, sizeof(lanes));
    for (const std::int32_t lane : lanes)
      any = any || lane != 0;
    return !any;
  }

private:
  static constexpr std::size_t width = shardwright::detail::lane_bytes / sizeof(double);
  using Halves = typename shardwright::detail::Vector<float, width>::type;
  using Numbers = typename shardwright::detail::Vector<double, width>::type;
  using Units = typename shardwright::detail::Vector<std::uint64_t, width>::type; // sums may wrap
  using Mask = typename shardwright::detail::Vector<std::int32_t, 2 * width>::type;

  /// The nearest integers of half a register of floats.
  static Units nearest(const Halves& numbers) {
#if defined(__AVX512DQ__) && !defined(__clang__) // which makes as good code of the general form
    typedef long long Wide __attribute__((vector_size(64)));
    return Units(__builtin_ia32_cvtps2qq512_mask(numbers, Wide{}, static_cast<char>(-1), 4));
#else
    // 1.5 * 2^52 + u rounds u to an integer, which is then the difference of the bits (as in exact_sums.hpp).
    const Numbers shifted = __builtin_convertvector(numbers, Numbers) + 0x1.8p52;
    Units bits;
    __builtin_memcpy(&bits, &shifted, sizeof(bits));
    return bits - 0x4338000000000000U;
#endif
  }
  template <class Register>
  void add_register([[maybe_unused]] const Register& terms, [[maybe_unused]] FixedPoint* to) {
#if !defined(__CUDA_ARCH__) // where no kernel calls it
    const auto fits = (terms > -FixedPoint::limit) & (terms < FixedPoint::limit);
    unfit_ = fits ? unfit_ : ~Mask{};
    const Register numbers = (fits ? terms : Register{}) * 0x1p32F; // exact
    Halves half[2];
    static_assert(sizeof(half) == sizeof(numbers));
    __builtin_memcpy(half, &numbers, sizeof(half));
    for (std::size_t i = 0; i < 2; ++i) {
      Units sum;
      __builtin_memcpy(&sum, to + i * width, sizeof(sum));
      sum += nearest(half[i]);
      __builtin_memcpy(static_cast<void*>(to + i * width), &sum, sizeof(sum));
    }
#endif
  }
  void add_some(const float* terms, std::size_t count, FixedPoint* to) {
    for (std::size_t i = 0; i < count; ++i)
      if (FixedPoint::fits(terms[i]))
        to[i] += FixedPoint::of(terms[i]);
      else
        one_unfit_ = true;
  }

  Mask unfit_{};
  bool one_unfit_ = false;
};

/// sums[row_of(i), c] (+)= the terms of row i, for a piece of the columns; rows beyond the sums are left out.
template <class Terms, class RowOf> struct AddTerms {
  Terms terms;
  std::size_t rows;
  RowOf row_of;
  MatrixSpan<FixedPoint> sums;
  bool add;
  bool* fault;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t, [[maybe_unused]] std::size_t begin,
                                       [[maybe_unused]] std::size_t end) const {
#if !defined(__CUDA_ARCH__) // where no kernel calls it
    for (std::size_t r = 0; r < sums.rows && !add; ++r)
      for (std::size_t c = begin; c < end; ++c)
        sums.row(r)[c] = {};
    TermAdder adder;
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t r = row_of(i);
      if (r >= sums.rows)
        continue;
      FixedPoint* const to = sums.row(r);
      terms.of_row(i * sums.columns, [&](const auto& value, const auto*... memory) {
        for_chunks<float>(
            begin, end, [&](auto chunk, std::size_t c) { adder.add(chunk, value(chunk, c), to + c); },
            memory...);
      });
    }
    if (!adder.all_fit())
      note_fault(fault);
#endif
  }
};

/// Stores sums as floats, and notes those out of range.
struct RoundSums {
  const FixedPoint* from;
  float* to;
  bool* fault;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t, [[maybe_unused]] std::size_t begin,
                                       [[maybe_unused]] std::size_t end) const {
#if !defined(__CUDA_ARCH__)   // where no kernel calls it
    std::uint64_t differ = 0; // whose top bit is set if the two top bits of a sum differ
    for (std::size_t i = begin; i < end; ++i) {
      to[i] = static_cast<float>(from[i]);
      const auto bits = static_cast<std::uint64_t>(from[i].units);
      differ |= bits ^ bits << 1;
    }
    static_assert(FixedPoint::unit_limit == std::int64_t{1} << 62);
    if (differ >> 63 != 0)
      note_fault(fault);
#endif
  }
};

/// All rows are added to one.
struct OneRow {
  SHARDWRIGHT_FUNCTION std::size_t operator()(std::size_t) const { return 0; }
};

template <class Execution, class Terms, class RowOf>
void run_add_terms(const char* label, const Execution& execution, const Terms& terms, std::size_t rows,
                   const RowOf& row_of, const MatrixSpan<FixedPoint>& sums, bool add, bool* fault) {
  static_assert(std::is_same_v<typename Terms::Number, float>,
                "Reproducible: terms of gradients must be float (use float or bfloat16 elements)");
  static_assert(runs_on_host<Execution> || counts_only<Execution>);
  moves(label, execution, terms.bytes(rows * sums.columns, sums.columns), (add ? 2 : 1) * bytes_of(sums));
  run_pieces(label, execution, 1, sums.columns, 1024,
             AddTerms<Terms, RowOf>{terms, rows, row_of, sums, add, fault});
}

} // namespace detail

/// @brief out[c] (+)= the sum of rows of terms (kernels/terms.hpp), each rounded to FixedPoint: the gradient
/// of a bias.
/// @param out    [columns]
/// @param add    false overwrites `out`
/// @param fault  in host memory; becomes true if a term does not fit: it is then left out
template <class Execution, class Terms>
void column_sums(const Execution& execution, const Terms& terms, std::size_t rows, std::size_t columns,
                 FixedPoint* out, bool add, bool* fault) {
  detail::run_add_terms("sw::column_sums", execution, terms, rows, detail::OneRow{},
                        {out, 1, columns, columns}, add, fault);
}

/// @brief The nearest floats of complete sums.
/// @param fault  in host memory; becomes true if a sum is out of range
/// @throws InvalidArgument for views of different sizes, or that are not contiguous.
template <class Execution, KernelView Sums, KernelView Floats>
void round_sums(const Execution& execution, const Sums& sums, const Floats& floats, bool* fault) {
  const auto from = flat_span_of(sums, "round_sums");
  const auto to = flat_span_of(floats, "round_sums");
  require(from.size == to.size, "round_sums", "both views must have the same size.");
  moves("sw::round_sums", execution, from, to);
  run_pieces("sw::round_sums", execution, 1, to.size, 4096, detail::RoundSums{from.data, to.data, fault});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
