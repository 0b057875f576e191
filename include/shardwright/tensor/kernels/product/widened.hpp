// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Host products of float and double, and of 16-bit elements, whose blocks are converted to float in
/// cache.

#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/kernels/lanes/narrow_rows.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/product/blas.hpp>
#include <shardwright/tensor/kernels/product/portable.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// C = alpha A B + beta C on the host: the BLAS on this thread, or register tiles.
template <class Execution, class Number>
void number_product(const Execution& execution, std::size_t m, std::size_t n, std::size_t k, Number alpha,
                    const Factor<Number>& a, const Factor<Number>& b, Number beta, Number* c,
                    std::size_t c_stride) {
#if SHARDWRIGHT_WITH_BLAS
  constexpr std::size_t most = std::size_t(std::numeric_limits<BlasInteger>::max());
  require(m <= most && n <= most && k <= most && a.stride <= most && b.stride <= most, "matmul",
          "the BLAS counts with 32-bit integers (use smaller blocks).");
  const auto leading = [](std::size_t stride) { return stride == 0 ? std::size_t{1} : stride; };
  shardwright::detail::wait_for_kernels(execution); // the BLAS runs now, on this thread
  blas_gemm(a.transposed, b.transposed, m, n, k, alpha, a.data, leading(a.stride), b.data, leading(b.stride),
            beta, c, c_stride);
#else
  run_product(execution, Product<Number>::of(m, n, k, alpha, a, b, beta, c, c_stride));
#endif
}

/// Memory for blocks of floats, kept for the next product of the thread.
inline float* product_workspace(std::size_t floats) {
  thread_local std::vector<float> memory;
  if (memory.size() < floats)
    memory.resize(floats);
  return memory.data();
}

/// The block of a factor with `rows` rows and `columns` columns after transposition, as floats at `to`.
template <class Execution, class Element>
Factor<float> widened(const Execution& execution, const Factor<Element>& factor, std::size_t rows,
                      std::size_t columns, float* to) {
  if (factor.transposed)
    std::swap(rows, columns);
  run_lanes("sw::widen", execution, rows, WidenRows<Element>{factor.data, factor.stride, to, columns});
  return {to, columns, factor.transposed};
}

/// Rows, columns and depth of the converted blocks: small compared with the cache, and each element is used
/// this many times.
inline constexpr std::size_t widened_block = 512;

/// C = alpha A B + beta C for 16-bit factors: sums of floats over the whole depth, rounded once if C is
/// 16-bit.
template <class Execution, class Element, class Out>
void widened_product(const Execution& execution, std::size_t m, std::size_t n, std::size_t k, float alpha,
                     const Factor<Element>& a, const Factor<Element>& b, float beta, Out* c,
                     std::size_t c_stride) {
  constexpr std::size_t block = widened_block;
  const std::size_t most_rows = std::min(m, block), most_columns = std::min(n, block),
                    most_depth = std::min(k, block);
  float* const left = product_workspace((most_rows + most_columns) * most_depth + most_rows * most_columns);
  float* const right = left + most_rows * most_depth;
  float* const sums = right + most_depth * most_columns;
  for (std::size_t j = 0; j < n; j += block) {
    const std::size_t columns = std::min(block, n - j);
    for (std::size_t i = 0; i < m; i += block) {
      const std::size_t rows = std::min(block, m - i);
      Out* const to = c + i * c_stride + j;
      std::size_t l = 0;
      do { // once even for an empty depth, which still scales C
        const std::size_t depth = std::min(block, k - l);
        const auto wide_a = widened(execution, a.from(i, l), rows, depth, left);
        const auto wide_b = widened(execution, b.from(l, j), depth, columns, right);
        if constexpr (is_narrow<Out>)
          number_product(execution, rows, columns, depth, alpha, wide_a, wide_b, l == 0 ? 0.0f : 1.0f, sums,
                         columns);
        else
          number_product(execution, rows, columns, depth, alpha, wide_a, wide_b, l == 0 ? beta : 1.0f, to,
                         c_stride);
        l += depth;
      } while (l < k);
      if constexpr (is_narrow<Out>)
        run_lanes("sw::round", execution, rows, RoundRows<Out>{sums, columns, beta, to, c_stride});
    }
  }
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
