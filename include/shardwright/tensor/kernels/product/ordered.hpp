// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Host products whose elements have the same bits in a product of any size, at any place.

#include <shardwright/core/element.hpp>
#include <shardwright/core/fixed_point.hpp>
#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/tensor/kernels/lanes/narrow_rows.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/ordered/fixed_point_sums.hpp>
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

/// @brief Ordered products of a Reproducible target, whose contracted dimension a mesh may cut, too.
///
/// In memory, the contracted dimension is `runs` runs of `parts` equal pieces; part p has piece p of each
/// run. Each part is added in order, and parts join in a binary tree, every node rounded to the element of
/// the result: so a rank that holds some of the parts has a node of the tree of all.
struct ReproducibleProducts {
  std::size_t parts = 1; ///< A power of two up to ordered_parts.
  std::size_t runs = 1;
  /// For a FixedPoint result: products whose sum, a float, becomes a term of it. A power of two up to 256.
  std::size_t leaf = 256;
  bool* fault = nullptr; ///< Becomes true if a term does not fit a FixedPoint result.
};

namespace detail {

/// Sums of 256 products from the first of a part on; then these sums in order. Register tiles add the
/// products of each element alone, so neither the tile nor the place in it matters.
///
/// A block of the result stays in cache while the depth goes by. Both factors are packed as numbers of
/// arithmetic: the right one into panels as wide as the tiles, rows of the left one in the order in which
/// they are stored.
template <class Element, class Out = Element> class OrderedProduct {
  using Number = AccumulationElement<Element>;
  static constexpr bool fixed_point = std::is_same_v<Out, FixedPoint>;

public:
  static constexpr std::size_t depth_block = 256;

  explicit OrderedProduct(const Product<Element, Out>& product, const ReproducibleProducts& order = {})
      : p_(product), order_(order), run_(product.k / (order.parts * order.runs)) {}

  /// @param memory  Number [workspace], aligned to a cache line
  void run(Number* memory) const {
    const Memory m{memory, memory + row_block * depth_block,
                   memory + row_block * depth_block + kept_depth * column_block,
                   memory + row_block * depth_block + kept_depth * column_block + row_block * panel};
    for (std::size_t j = 0; j < p_.n; j += column_block)
      for (std::size_t i = 0; i < p_.m; i += row_block)
        add_block(m, {i, std::min(row_block, p_.m - i), j, std::min(column_block, p_.n - j)});
  }

private:
  static constexpr std::size_t panel = (wide_tile == 4 ? 4 : 2) * lane_count<Number>;
  static constexpr std::size_t row_block = 240; // a multiple of the tiles' rows
  static constexpr std::size_t column_block = 128;
  static_assert(column_block % panel == 0);
  static constexpr std::size_t kept_depth = 4096; // up to it, a block of columns is packed once
  static constexpr std::size_t most_nodes = 4;    // of a tree of 8 parts, at a time
  static constexpr std::size_t node_size = row_block * column_block;

public:
  static constexpr std::size_t workspace =
      row_block * depth_block + kept_depth * column_block + row_block * panel + most_nodes * node_size;

private:
  struct Memory {
    Number* left;
    Number* right;
    Number* edge;
    Number* nodes;
  };
  /// Rows and columns of the result.
  struct Block {
    std::size_t i, rows, j, columns;
  };

  void add_block(const Memory& m, const Block& block) const {
    if constexpr (fixed_point) {
      if (p_.beta == 0)
        for_rows(block, [&block](FixedPoint* c) { std::fill_n(c, block.columns, FixedPoint{}); });
      add_part<false>(m, block, 0, p_.c + block.i * p_.c_stride + block.j, p_.c_stride);
    } else {
      if constexpr (std::is_same_v<Number, Out>)
        if (order_.parts == 1) {
          for_rows(block, [&](Number* c) {
            for (std::size_t l = 0; l < block.columns; ++l)
              c[l] = blend(p_.beta, c[l]);
          });
          return add_part<false>(m, block, 0, p_.c + block.i * p_.c_stride + block.j, p_.c_stride);
        }
      add_tree(m, block);
    }
  }
  template <class Visit> void for_rows(const Block& block, const Visit& visit) const {
    for (std::size_t r = 0; r < block.rows; ++r)
      visit(p_.c + (block.i + r) * p_.c_stride + block.j);
  }

  /// All parts in a binary tree, whose nodes wait in memory for their right sibling.
  void add_tree(const Memory& m, const Block& block) const {
    std::size_t held = 0;
    const std::size_t size = block.rows * column_block;
    for (std::size_t part = 0; part < order_.parts; ++part) {
      Number* node = m.nodes + held++ * node_size;
      std::fill_n(node, size, Number(0));
      add_part<true>(m, block, part, node, column_block);
      if (order_.parts > 1)
        round_numbers<Out>(node, size);
      for (std::size_t ended = part + 1; ended % 2 == 0; ended /= 2, --held) {
        node -= node_size;
        add_lanes(node + node_size, node, 0, size);
        round_numbers<Out>(node, size);
      }
    }
    for (std::size_t r = 0; r < block.rows; ++r)
      RoundRows<Out>{m.nodes + r * column_block, block.columns, p_.beta,
                     p_.c + (block.i + r) * p_.c_stride + block.j, 0}(0);
  }

  /// `to` += one part of the products.
  template <bool whole_panels, class To>
  void add_part(const Memory& m, const Block& block, std::size_t part, To* to, std::size_t stride) const {
    const std::size_t length = order_.runs * run_;
    const bool kept = p_.k <= kept_depth;
    for (std::size_t k = 0; k < length; k += depth_block) {
      const std::size_t depth = std::min(depth_block, length - k);
      Number* const right = m.right + (kept ? (part * length + k) * column_block : 0);
      if (block.i == 0 || !kept)
        pack_right(right, part, k, depth, block);
      const TileLeft<Number> left = pack_left(m.left, part, k, depth, block);
      for (std::size_t c = 0; c < block.columns; c += panel) {
        const std::size_t columns = whole_panels ? panel : std::min(panel, block.columns - c);
        add_panel(left, right + c * depth, block.rows, depth, to + c, stride, columns, m.edge);
      }
    }
  }
  void add_panel(const TileLeft<Number>& a, const Number* b, std::size_t rows, std::size_t depth, Number* to,
                 std::size_t stride, std::size_t columns, Number* edge) const {
    if (columns == panel)
      return product_in_tiles<TileStore::accumulate>(rows, panel, depth, a, b, panel, to, stride);
    product_in_tiles<TileStore::assign>(rows, panel, depth, a, b, panel, edge, panel);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t l = 0; l < columns; ++l)
        to[r * stride + l] += edge[r * panel + l];
  }
  void add_panel(const TileLeft<Number>& a, const Number* b, std::size_t rows, std::size_t depth,
                 FixedPoint* to, std::size_t stride, std::size_t columns, Number* edge) const {
    for (std::size_t k = 0; k < depth; k += order_.leaf) {
      product_in_tiles<TileStore::assign>(rows, panel, std::min(order_.leaf, depth - k),
                                          {a.data + k * a.step, a.row_stride, a.step}, b + k * panel, panel,
                                          edge, panel);
      TermAdder adder;
      for (std::size_t r = 0; r < rows; ++r)
        adder.add(edge + r * panel, columns, to + r * stride);
      if (!adder.all_fit())
        *order_.fault = true;
    }
  }

  /// Calls visit(index in the block, index in the factors, length) for contiguous pieces of a part's block.
  template <class Visit>
  void for_pieces(std::size_t part, std::size_t k, std::size_t depth, const Visit& visit) const {
    for (std::size_t at = 0; at < depth;) {
      const std::size_t run = (k + at) / run_, inside = (k + at) % run_;
      const std::size_t length = std::min(depth - at, run_ - inside);
      visit(at, (run * order_.parts + part) * run_ + inside, length);
      at += length;
    }
  }
  void pack_right(Number* to, std::size_t part, std::size_t k, std::size_t depth, const Block& block) const {
    const std::size_t step = p_.b.column_stride();
    for (std::size_t c = 0; c < block.columns; c += panel) {
      const std::size_t width = std::min(panel, block.columns - c);
      for_pieces(part, k, depth, [&](std::size_t at, std::size_t index, std::size_t length) {
        for (std::size_t i = 0; i < length; ++i) {
          Number* const row = to + c * depth + (at + i) * panel;
          const Element* const from = p_.b.from(index + i, block.j + c).data;
          for (std::size_t l = 0; l < width; ++l)
            row[l] = static_cast<Number>(from[l * step]);
          for (std::size_t l = width; l < panel; ++l)
            row[l] = Number(0);
        }
      });
    }
  }
  [[nodiscard]] TileLeft<Number> pack_left(Number* to, std::size_t part, std::size_t k, std::size_t depth,
                                           const Block& block) const {
    const bool transposed = p_.a.transposed;
    for_pieces(part, k, depth, [&](std::size_t at, std::size_t index, std::size_t length) {
      const Element* const from = p_.a.from(block.i, index).data;
      Number* const piece = to + (transposed ? at * row_block : at);
      const std::size_t lines = transposed ? length : block.rows;
      const std::size_t numbers = transposed ? block.rows : length;
      const std::size_t stride = transposed ? row_block : depth_block;
      for (std::size_t line = 0; line < lines; ++line)
        for (std::size_t l = 0; l < numbers; ++l)
          piece[line * stride + l] = p_.alpha * static_cast<Number>(from[line * p_.a.stride + l]);
    });
    return {to, transposed ? 1 : depth_block, transposed ? row_block : 1};
  }

  Product<Element, Out> p_;
  ReproducibleProducts order_;
  std::size_t run_; // indices of a part in one run
};

/// Memory for the factors and sums of ordered products, kept for the next one of the thread.
template <class Number> Number* ordered_workspace() {
  struct Lines {
    alignas(64) Number numbers[OrderedProduct<Number>::workspace];
  };
  thread_local const std::unique_ptr<Lines> memory(new Lines); // not initialised
  return memory->numbers;
}

/// The product of matching shapes, ordered.
template <class Execution, class Element, class Out>
void start_ordered_product(const Execution& execution, const Product<Element, Out>& product,
                           const ReproducibleProducts& order = {}) {
  static_assert(
      runs_on_host<Execution> || counts_only<Execution>,
      "OrderedProducts: the tensors must be in host memory, because libraries of devices add in an order of their own (use FastProducts)");
  if constexpr (std::is_same_v<Out, FixedPoint>)
    require(order.fault != nullptr, "matmul",
            "a FixedPoint result needs a flag for terms that do not fit (add to the slot of a parameter).");
  if (product.m == 0 || product.n == 0)
    return;
  moves("sw::matmul", execution, (product.m + product.n) * product.k * sizeof(Element),
        (product.beta == 0 ? 1 : 2) * product.m * product.n * sizeof(Out));
  if constexpr (counts_only<Execution>) {
    shardwright::detail::count_flops(2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                                     static_cast<double>(product.k));
  } else {
    shardwright::detail::wait_for_kernels(execution); // this thread multiplies now
    OrderedProduct<Element, Out>(product, order).run(ordered_workspace<AccumulationElement<Element>>());
  }
}
template <class Execution, class Element, class Out>
void start_product(const Execution& execution, const Product<Element, Out>& product, OrderedProducts) {
  static_assert(
      std::is_same_v<Element, Out> && std::is_floating_point_v<Element>,
      "OrderedProducts: the factors must be of float or double, and the result too (convert them first)");
  start_ordered_product(execution, product);
}
template <class Execution, class Element, class Out>
void start_product(const Execution& execution, const Product<Element, Out>& product,
                   const ReproducibleProducts& order) {
  start_ordered_product(execution, product, order);
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
