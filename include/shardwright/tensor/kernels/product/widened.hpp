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
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

#if SHARDWRIGHT_WITH_BLAS
/// A product by the BLAS, on this thread.
void blas_product(const Product<float>& product);
void blas_product(const Product<double>& product);

#if !defined(SHARDWRIGHT_COMPILED)
template <class Number, class Gemm> void call_blas(const Product<Number>& product, Gemm* gemm) {
  const auto& [m, n, k, alpha, a, b, beta, c, c_stride] = product;
  constexpr std::size_t most = std::size_t(std::numeric_limits<int>::max());
  require(m <= most && n <= most && k <= most && a.stride <= most && b.stride <= most, "matmul",
          "the BLAS counts with 32-bit integers (use smaller blocks).");
  const auto size = [](std::size_t count) { return static_cast<int>(count); };
  const auto leading = [&size](const Factor<Number>& factor) {
    return size(std::max(factor.stride, std::size_t{1}));
  };
  const auto form = [](const Factor<Number>& factor) {
    return factor.transposed ? CblasTrans : CblasNoTrans;
  };
  gemm(CblasRowMajor, form(a), form(b), size(m), size(n), size(k), alpha, a.data, leading(a), b.data,
       leading(b), beta, c, size(c_stride));
}
SHARDWRIGHT_INLINE void blas_product(const Product<float>& product) { call_blas(product, &cblas_sgemm); }
SHARDWRIGHT_INLINE void blas_product(const Product<double>& product) { call_blas(product, &cblas_dgemm); }
#endif
#endif

/// A product on the host: the BLAS, or register tiles.
template <class Execution, class Number>
void number_product(const Execution& execution, const Product<Number>& product) {
#if SHARDWRIGHT_WITH_BLAS
  shardwright::detail::wait_for_kernels(execution); // the BLAS runs now, on this thread
  blas_product(product);
#else
  run_product(execution, product);
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

/// A product of 16-bit factors: sums of floats over the whole depth, rounded once if C is 16-bit.
template <class Execution, class Element, class Out>
void widened_product(const Execution& execution, const Product<Element, Out>& p) {
  constexpr std::size_t block = widened_block;
  const std::size_t most_rows = std::min(p.m, block), most_columns = std::min(p.n, block),
                    most_depth = std::min(p.k, block);
  float* const left = product_workspace((most_rows + most_columns) * most_depth + most_rows * most_columns);
  float* const right = left + most_rows * most_depth;
  float* const sums = right + most_depth * most_columns;
  for (std::size_t j = 0; j < p.n; j += block) {
    const std::size_t columns = std::min(block, p.n - j);
    for (std::size_t i = 0; i < p.m; i += block) {
      const std::size_t rows = std::min(block, p.m - i);
      Out* const to = p.c + i * p.c_stride + j;
      std::size_t l = 0;
      do { // once even for an empty depth, which still scales C
        const std::size_t depth = std::min(block, p.k - l);
        const auto wide_a = widened(execution, p.a.from(i, l), rows, depth, left);
        const auto wide_b = widened(execution, p.b.from(l, j), depth, columns, right);
        Product<float> part{rows, columns, depth, p.alpha, wide_a, wide_b, l == 0 ? 0.0f : 1.0f,
                            sums, columns};
        if constexpr (!is_narrow<Out>) {
          part.beta = l == 0 ? p.beta : 1.0f;
          part.c = to;
          part.c_stride = p.c_stride;
        }
        number_product(execution, part);
        l += depth;
      } while (l < p.k);
      if constexpr (is_narrow<Out>)
        run_lanes("sw::round", execution, rows, RoundRows<Out>{sums, columns, p.beta, to, p.c_stride});
    }
  }
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
