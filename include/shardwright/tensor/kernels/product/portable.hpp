// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Matrix products as Kokkos kernels: register tiles on the host, one element per thread on a device.

#include <shardwright/core/element.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/product/tiles.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// A factor of a product, as stored in memory.
template <class Element> struct Factor {
  const Element* data;
  std::size_t stride;
  bool transposed;

  /// From a row and a column of the factor as it is after transposition.
  [[nodiscard]] Factor from(std::size_t row, std::size_t column) const {
    return {data + (transposed ? column * stride + row : row * stride + column), stride, transposed};
  }
};

/// C = alpha A B + beta C for the operands as they are after transposition.
/// `Out` is the element of the factors or its AccumulationElement.
template <class Element, class Out = Element> struct Product {
  using Number = AccumulationElement<Element>;
  std::size_t m;
  std::size_t n;
  std::size_t k;
  Number alpha;
  TileLeft<Element> a;
  const Element* b;
  std::size_t b_row;    // distance between rows of the (transposed) B
  std::size_t b_column; // and between its columns
  Number beta;
  Out* c;
  std::size_t c_stride;

  [[nodiscard]] static Product of(std::size_t m, std::size_t n, std::size_t k, Number alpha,
                                  const Factor<Element>& a, const Factor<Element>& b, Number beta, Out* c,
                                  std::size_t c_stride) {
    return {m,
            n,
            k,
            alpha,
            {a.data, a.transposed ? 1 : a.stride, a.transposed ? a.stride : 1},
            b.data,
            b.transposed ? 1 : b.stride,
            b.transposed ? b.stride : 1,
            beta,
            c,
            c_stride};
  }
};

/// beta = 0 overwrites, so that a NaN in uninitialized memory does not survive.
template <class Number> SHARDWRIGHT_FUNCTION inline Number blend(Number beta, Number old) {
  return beta == Number(0) ? Number(0) : beta * old;
}

/// One element of C per call.
template <class Element, class Out = Element> struct ProductElement {
  using Number = AccumulationElement<Element>;
  Product<Element, Out> p;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    const std::size_t i = index / p.n;
    const std::size_t j = index % p.n;
    Number sum(0);
    for (std::size_t k = 0; k < p.k; ++k) {
      sum += p.a.data[i * p.a.row_stride + k * p.a.step] * p.b[k * p.b_row + j * p.b_column];
    }
    Out& c = p.c[i * p.c_stride + j];
    c = static_cast<Out>(p.alpha * sum + blend<Number>(p.beta, c));
  }
};

/// A block of rows of C per call, with B packed into panels on the stack; float and double.
template <class Element> struct ProductRows {
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

template <class Execution, class Element, class Out>
void run_product(const Execution& execution, const Product<Element, Out>& product) {
  if constexpr (runs_on_host<Execution> && !is_narrow<Element>) {
    run("sw::matmul", execution, blocks_of(product.m, ProductRows<Element>::row_block),
        ProductRows<Element>{product});
  } else {
    run("sw::matmul", execution, product.m * product.n, ProductElement<Element, Out>{product});
  }
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
