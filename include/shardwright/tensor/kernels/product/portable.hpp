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
  [[nodiscard]] SHARDWRIGHT_FUNCTION Factor from(std::size_t row, std::size_t column) const {
    return {data + row * row_stride() + column * column_stride(), stride, transposed};
  }
  /// Distances between neighbours of a column and of a row after transposition.
  [[nodiscard]] SHARDWRIGHT_FUNCTION std::size_t row_stride() const { return transposed ? 1 : stride; }
  [[nodiscard]] SHARDWRIGHT_FUNCTION std::size_t column_stride() const { return transposed ? stride : 1; }
};

/// C = alpha A B + beta C for the factors as they are after transposition; beta = 0 ignores the old C. `Out`
/// is the element of the factors or its AccumulationElement.
template <class Element, class Out = Element> struct Product {
  using Number = AccumulationElement<Element>;
  std::size_t m;
  std::size_t n;
  std::size_t k;
  Number alpha;
  Factor<Element> a; // [m, k]
  Factor<Element> b; // [k, n]
  Number beta;
  Out* c;
  std::size_t c_stride;
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
    const Element* const row = p.a.from(i, 0).data;
    const Element* const column = p.b.from(0, j).data;
    const std::size_t row_step = p.a.column_stride(), column_step = p.b.row_stride();
    Number sum(0);
    for (std::size_t k = 0; k < p.k; ++k)
      sum += row[k * row_step] * column[k * column_step];
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
        const TileLeft<Element> left{p.a.from(begin, k).data, p.a.row_stride(), p.a.column_stride()};
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
    const std::size_t step = p.b.column_stride();
    for (std::size_t i = 0; i < depth; ++i) {
      const Element* from = p.b.from(k + i, j).data;
      for (std::size_t l = 0; l < panel; ++l)
        right[i * panel + l] = l < columns ? from[l * step] : Element(0);
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
