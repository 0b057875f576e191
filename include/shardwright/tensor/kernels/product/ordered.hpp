// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Host products whose elements have the same bits in a product of any size, at any place.

#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/product/portable.hpp>
#include <shardwright/tensor/kernels/product/tiles.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief How products are computed: by the fastest library of the target, or so that an element's bits
/// depend only on its row of the left factor and its column of the right one. A library cuts sums at depths,
/// and chooses kernels, by the sizes of the factors.
struct FastProducts {};
struct OrderedProducts {};

namespace detail {

/// Sums of 256 products from the first on; then C is the sum of these sums in order. Register tiles add the
/// products of each element alone, so neither the tile nor the place in it matters.
///
/// Both factors are packed: a block of the right one into panels as wide as the tiles, and rows of the left
/// one, in the order in which they are stored.
template <class Number> class OrderedProduct {
public:
  static constexpr std::size_t depth_block = 256;

  explicit OrderedProduct(const Product<Number>& product) : p_(product) {}

  /// @param memory  Number [workspace], aligned to a cache line
  void run(Number* memory) const {
    Number* const left = memory;
    Number* const right = left + row_block * depth_block;
    Number* const edge = right + depth_block * column_block;
    for (std::size_t j = 0; j < p_.n; j += column_block) {
      const std::size_t columns = std::min(column_block, p_.n - j);
      for (std::size_t k = 0; k == 0 || k < p_.k; k += depth_block) { // once even for no depth
        const std::size_t depth = std::min(depth_block, p_.k - k);
        pack_right(right, k, depth, j, columns);
        for (std::size_t i = 0; i < p_.m; i += row_block) {
          const std::size_t rows = std::min(row_block, p_.m - i);
          const TileLeft<Number> a = pack_left(left, i, rows, k, depth);
          for (std::size_t c = 0; c < columns; c += panel)
            add_panel(a, right + c * depth_block, rows, depth, i, j + c, std::min(panel, columns - c), k == 0,
                      edge);
        }
      }
    }
  }

private:
  static constexpr std::size_t panel = (wide_tile == 4 ? 4 : 2) * lane_count<Number>;
  static constexpr std::size_t row_block = 240; // a multiple of the tiles' rows
  static constexpr std::size_t column_block = 1024;
  static_assert(column_block % panel == 0);

public:
  static constexpr std::size_t workspace =
      row_block * depth_block + depth_block * column_block + row_block * panel;

private:
  void pack_right(Number* to, std::size_t k, std::size_t depth, std::size_t j, std::size_t columns) const {
    const std::size_t step = p_.b.column_stride();
    for (std::size_t c = 0; c < columns; c += panel) {
      const std::size_t width = std::min(panel, columns - c);
      for (std::size_t i = 0; i < depth; ++i) {
        Number* const row = to + c * depth_block + i * panel;
        const Number* const from = p_.b.from(k + i, j + c).data;
        for (std::size_t l = 0; l < width; ++l)
          row[l] = from[l * step];
        for (std::size_t l = width; l < panel; ++l)
          row[l] = Number(0);
      }
    }
  }
  [[nodiscard]] TileLeft<Number> pack_left(Number* to, std::size_t i, std::size_t rows, std::size_t k,
                                           std::size_t depth) const {
    const Number* const from = p_.a.from(i, k).data;
    const bool transposed = p_.a.transposed;
    const std::size_t lines = transposed ? depth : rows;
    const std::size_t length = transposed ? rows : depth;
    const std::size_t stride = transposed ? row_block : depth_block;
    for (std::size_t line = 0; line < lines; ++line)
      for (std::size_t l = 0; l < length; ++l)
        to[line * stride + l] = p_.alpha * from[line * p_.a.stride + l];
    return {to, transposed ? 1 : stride, transposed ? stride : 1};
  }
  /// C (+)= A B for one panel of columns.
  void add_panel(const TileLeft<Number>& a, const Number* b, std::size_t rows, std::size_t depth,
                 std::size_t i, std::size_t j, std::size_t columns, bool first, Number* edge) const {
    Number* const c = p_.c + i * p_.c_stride + j;
    if (first)
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t l = 0; l < columns; ++l)
          c[r * p_.c_stride + l] = blend(p_.beta, c[r * p_.c_stride + l]);
    if (columns == panel)
      return product_in_tiles<TileStore::accumulate>(rows, panel, depth, a, b, panel, c, p_.c_stride);
    product_in_tiles<TileStore::assign>(rows, panel, depth, a, b, panel, edge, panel);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t l = 0; l < columns; ++l)
        c[r * p_.c_stride + l] += edge[r * panel + l];
  }

  Product<Number> p_;
};

/// Memory for the factors of ordered products, kept for the next one of the thread.
template <class Number> Number* ordered_workspace() {
  struct Lines {
    alignas(64) Number numbers[OrderedProduct<Number>::workspace];
  };
  thread_local const std::unique_ptr<Lines> memory(new Lines); // not initialised
  return memory->numbers;
}

/// The product of matching shapes, ordered.
template <class Execution, class Element, class Out>
void start_ordered_product(const Execution& execution, const Product<Element, Out>& product) {
  static_assert(
      std::is_same_v<Element, Out> && std::is_floating_point_v<Element>,
      "OrderedProducts: the factors must be of float or double, and the result too (convert them first)");
  static_assert(
      runs_on_host<Execution> || counts_only<Execution>,
      "OrderedProducts: the tensors must be in host memory, because libraries of devices add in an order of their own (use FastProducts)");
  if (product.m == 0 || product.n == 0)
    return;
  moves("sw::matmul", execution, (product.m + product.n) * product.k * sizeof(Element),
        (product.beta == 0 ? 1 : 2) * product.m * product.n * sizeof(Out));
  if constexpr (counts_only<Execution>) {
    shardwright::detail::count_flops(2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                                     static_cast<double>(product.k));
  } else {
    shardwright::detail::wait_for_kernels(execution); // this thread multiplies now
    OrderedProduct<Element>(product).run(ordered_workspace<Element>());
  }
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
