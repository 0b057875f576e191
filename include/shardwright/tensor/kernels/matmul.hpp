// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Local matrix product: the host BLAS where there is one, else register tiles.

#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/kernels/blas.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/tiles.hpp>

#include <cstddef>
#include <limits>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Whether a factor of a matrix product is taken as it is or transposed.
enum class Transpose : bool { no, yes };

namespace detail {

/// C = alpha A B + beta C for the operands as they are after transposition.
template <class Element>
struct Product {
  std::size_t m;
  std::size_t n;
  std::size_t k;
  Element alpha;
  TileLeft<Element> a;
  const Element* b;
  std::size_t b_row;    // distance between rows of the (transposed) B
  std::size_t b_column; // and between its columns
  Element beta;
  Element* c;
  std::size_t c_stride;
};

/// beta = 0 overwrites, so that a NaN in uninitialized memory does not survive.
template <class Element>
SHARDWRIGHT_FUNCTION inline Element blend(Element beta, Element old) {
  return beta == Element(0) ? Element(0) : beta * old;
}

/// One element of C per call.
template <class Element>
struct ProductElement {
  Product<Element> p;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    const std::size_t i = index / p.n;
    const std::size_t j = index % p.n;
    Element sum(0);
    for (std::size_t k = 0; k < p.k; ++k) {
      sum += p.a.data[i * p.a.row_stride + k * p.a.step] * p.b[k * p.b_row + j * p.b_column];
    }
    Element& c = p.c[i * p.c_stride + j];
    c = p.alpha * sum + blend(p.beta, c);
  }
};

/// A block of rows of C per call, with B packed into panels on the stack.
template <class Element>
struct ProductRows {
  static constexpr std::size_t row_block = 48;
  static constexpr std::size_t depth_block = 128;
  static constexpr std::size_t panel = 2 * lane_count<Element>;
  Product<Element> p;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    const std::size_t begin = block * row_block;
    const std::size_t rows = block_end(block, row_block, p.m) - begin;
    alignas(64) Element right[depth_block * panel];
    alignas(64) Element sums[row_block * panel];
    for (std::size_t j = 0; j < p.n; j += panel) {
      const std::size_t columns = j + panel <= p.n ? panel : p.n - j;
      for (std::size_t i = 0; i < rows * panel; ++i)
        sums[i] = Element(0);
      for (std::size_t k = 0; k < p.k; k += depth_block) {
        const std::size_t depth = k + depth_block <= p.k ? depth_block : p.k - k;
        pack(right, k, depth, j, columns);
        const TileLeft<Element> left{p.a.data + begin * p.a.row_stride + k * p.a.step, p.a.row_stride,
                                     p.a.step};
        product_in_tiles<TileStore::accumulate>(rows, panel, depth, left, right, panel, sums, panel);
      }
      for (std::size_t i = 0; i < rows; ++i) {
        Element* c = p.c + (begin + i) * p.c_stride + j;
        for (std::size_t l = 0; l < columns; ++l)
          c[l] = p.alpha * sums[i * panel + l] + blend(p.beta, c[l]);
      }
    }
  }

private:
  SHARDWRIGHT_FUNCTION void pack(Element* right, std::size_t k, std::size_t depth, std::size_t j,
                                 std::size_t columns) const {
    for (std::size_t i = 0; i < depth; ++i) {
      const Element* from = p.b + (k + i) * p.b_row + j * p.b_column;
      for (std::size_t l = 0; l < panel; ++l)
        right[i * panel + l] = l < columns ? from[l * p.b_column] : Element(0);
    }
  }
};

template <class Execution, class Element>
void run_product(const Execution& execution, const Product<Element>& product) {
  if constexpr (runs_on_host<Execution>) {
    run("sw::matmul", execution, blocks_of(product.m, ProductRows<Element>::row_block),
        ProductRows<Element>{product});
  } else {
    run("sw::matmul", execution, product.m * product.n, ProductElement<Element>{product});
  }
}

} // namespace detail

/// @brief C = alpha op(A) op(B) + beta C with row-major matrices; beta = 0 ignores what C held.
///
/// On host memory this is the BLAS on the calling thread (see use_single_threaded_blas); without a BLAS, and
/// on a device, Kokkos kernels. Cost: 2 m n k floating-point operations.
/// @param a  [m, k], or [k, m] when transposed
/// @param b  [k, n], or [n, k] when transposed
/// @param c  [m, n], not overlapping the factors
/// @throws InvalidArgument where the shapes do not fit
template <class Execution, KernelMatrix A, KernelMatrix B, KernelMatrix C>
void matmul(const Execution& execution, const A& a, Transpose transpose_a, const B& b, Transpose transpose_b,
            const C& c, double alpha = 1.0, double beta = 0.0) {
  using Element = typename C::value_type;
  static_assert(std::is_same_v<Element, typename A::non_const_value_type> &&
                    std::is_same_v<Element, typename B::non_const_value_type>,
                "matmul: all three matrices must have one element type.");
  const auto left = detail::span_of(a);
  const auto right = detail::span_of(b);
  const auto out = detail::span_of(c);
  const bool ta = transpose_a == Transpose::yes;
  const bool tb = transpose_b == Transpose::yes;
  const std::size_t m = out.rows;
  const std::size_t n = out.columns;
  const std::size_t k = ta ? left.rows : left.columns;
  detail::require((ta ? left.columns : left.rows) == m, "matmul", "C must have as many rows as op(A).");
  detail::require((tb ? right.rows : right.columns) == n, "matmul", "C must have as many columns as op(B).");
  detail::require((tb ? right.columns : right.rows) == k, "matmul",
                  "op(B) must have as many rows as op(A) has columns.");
  if (m == 0 || n == 0)
    return;
#if SHARDWRIGHT_WITH_BLAS
  if constexpr (detail::runs_on_host<Execution>) {
    constexpr std::size_t most = std::size_t(std::numeric_limits<detail::BlasInteger>::max());
    detail::require(m <= most && n <= most && k <= most && left.stride <= most && right.stride <= most,
                    "matmul", "the BLAS counts with 32-bit integers (use smaller blocks).");
    const auto leading = [](std::size_t stride) { return stride == 0 ? std::size_t{1} : stride; };
    shardwright::detail::wait_for_kernels(execution); // the BLAS runs now, on this thread
    detail::blas_gemm(ta, tb, m, n, k, static_cast<Element>(alpha), left.data, leading(left.stride),
                      right.data, leading(right.stride), static_cast<Element>(beta), out.data, out.stride);
    return;
  }
#endif
  detail::run_product(execution,
                      detail::Product<Element>{m,
                                               n,
                                               k,
                                               static_cast<Element>(alpha),
                                               {left.data, ta ? 1 : left.stride, ta ? left.stride : 1},
                                               right.data,
                                               tb ? 1 : right.stride,
                                               tb ? right.stride : 1,
                                               static_cast<Element>(beta),
                                               out.data,
                                               out.stride});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
