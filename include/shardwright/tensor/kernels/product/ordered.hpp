// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Host products whose elements have the same bits in a product of any size, at any place.

#include <shardwright/core/element.hpp>
#include <shardwright/core/fixed_point.hpp>
#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/kernels/lanes/narrow_rows.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/ordered/fixed_point_sums.hpp>
#include <shardwright/tensor/kernels/product/leaf_sums.hpp>
#include <shardwright/tensor/kernels/product/packed.hpp>
#include <shardwright/tensor/kernels/product/portable.hpp>
#include <shardwright/tensor/kernels/product/tiles.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
  /// For a FixedPoint result: products whose sum, a float, becomes a term of it. A power of two up to
  /// most_leaf.
  std::size_t leaf = shardwright::detail::most_leaf;
  /// Instead of equal leaves: the indices of the contracted dimension at which they begin, from any number
  /// on, and the end. Each has at most most_leaf.
  std::span<const std::int64_t> leaves{};
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
      : p_(product), order_(order), run_(product.k / (order.parts * order.runs)), width_(block_columns()) {}

  /// @param memory  Number [workspace], aligned to a cache line
  void run(Number* memory) const {
    Number* const right = memory + row_block * depth_block;
    Number* const edge = right + kept_numbers;
    const Memory m{memory, right, edge, edge + row_block * panel};
    for (std::size_t j = 0; j < p_.n; j += width_)
      for (std::size_t i = 0; i < p_.m; i += row_block)
        add_block(m, {i, std::min(row_block, p_.m - i), j, std::min(width_, p_.n - j)});
  }

private:
  static constexpr std::size_t panel = (wide_tile == 4 ? 4 : 2) * lane_count<Number>;
  static constexpr std::size_t row_block = 240; // a multiple of the tiles' rows
  static constexpr std::size_t most_columns = 256;
  static_assert(most_columns % panel == 0);
  static constexpr std::size_t kept_numbers = 4096 * most_columns; // of the packed right factor
  static constexpr std::size_t most_nodes = 4;                     // of a tree of 8 parts, at a time
  static constexpr std::size_t node_size = row_block * most_columns;

  /// Columns of a block: if possible, few enough to keep all their depth packed for all rows.
  [[nodiscard]] std::size_t block_columns() const {
    const std::size_t kept = kept_numbers / std::max<std::size_t>(p_.k, 1) / panel * panel;
    return kept == 0 ? most_columns : std::min(most_columns, kept);
  }
  /// Whether sums need memory of their own.
  [[nodiscard]] bool in_tree() const {
    return !fixed_point && (order_.parts > 1 || !std::is_same_v<Number, Out>);
  }

public:
  static constexpr std::size_t workspace =
      row_block * depth_block + kept_numbers + row_block * panel + most_nodes * node_size;

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
    if constexpr (!fixed_point)
      if (in_tree())
        return add_tree(m, block);
    if constexpr (fixed_point || std::is_same_v<Number, Out>) {
      Out* const c = p_.c + block.i * p_.c_stride + block.j;
      const bool fresh = p_.beta == 0;
      if constexpr (!fixed_point)
        if (!fresh && p_.beta != 1)
          for (std::size_t r = 0; r < block.rows; ++r)
            for (std::size_t l = 0; l < block.columns; ++l)
              c[r * p_.c_stride + l] *= p_.beta;
      add_part<false>(m, block, 0, c, p_.c_stride, fresh);
    }
  }

  /// All parts in a binary tree, whose nodes wait in memory for their right sibling.
  void add_tree(const Memory& m, const Block& block) const {
    std::size_t held = 0;
    const std::size_t size = block.rows * width_;
    for (std::size_t part = 0; part < order_.parts; ++part) {
      Number* node = m.nodes + held++ * node_size;
      add_part<true>(m, block, part, node, width_, true);
      if (order_.parts > 1)
        round_numbers<Out>(node, size);
      for (std::size_t ended = part + 1; ended % 2 == 0; ended /= 2, --held) {
        node -= node_size;
        add_lanes(node + node_size, node, 0, size);
        round_numbers<Out>(node, size);
      }
    }
    for (std::size_t r = 0; r < block.rows; ++r)
      RoundRows<Out>{m.nodes + r * width_, block.columns, p_.beta,
                     p_.c + (block.i + r) * p_.c_stride + block.j, 0}(0);
  }

  /// `to` (+)= one part of the products. A node of a tree has memory for whole panels.
  template <bool is_node, class To>
  void add_part(const Memory& m, const Block& block, std::size_t part, To* to, std::size_t stride,
                bool fresh) const {
    const std::size_t length = order_.runs * run_;
    const bool kept = p_.k * width_ <= kept_numbers;
    std::size_t k = 0;
    do { // once even for no depth
      const std::size_t depth = depth_from(k, length);
      Number* const right = m.right + (kept ? (part * length + k) * width_ : 0);
      if (block.i == 0 || !kept)
        pack_right(right, part, k, depth, block);
      const TileLeft<Number> left = pack_left(m.left, part, k, depth, block);
      LeafEnds ends;
      if constexpr (fixed_point)
        ends = leaf_ends(k, depth);
      for (std::size_t c = 0; c < block.columns; c += panel)
        add_panel({left, right + c * depth, depth, ends.all()}, to + c, stride, block.rows,
                  is_node ? panel : std::min(panel, block.columns - c), fresh, m.edge);
      fresh = false;
      k += depth;
    } while (k < length);
  }
  /// The packed depth from an index of a part on, which cuts no leaf.
  [[nodiscard]] std::size_t depth_from(std::size_t k, std::size_t length) const {
    if (order_.leaves.empty())
      return std::min(depth_block, length - k);
    const std::int64_t first = order_.leaves.front() + static_cast<std::int64_t>(k);
    const auto beyond = std::upper_bound(order_.leaves.begin(), order_.leaves.end(),
                                         first + static_cast<std::int64_t>(depth_block));
    return static_cast<std::size_t>(*(beyond - 1) - first);
  }
  struct LeafEnds {
    std::size_t end[depth_block];
    std::size_t count = 0;
    [[nodiscard]] std::span<const std::size_t> all() const { return {end, count}; }
  };
  [[nodiscard]] LeafEnds leaf_ends(std::size_t k, std::size_t depth) const {
    LeafEnds ends;
    if (order_.leaves.empty()) {
      for (std::size_t end = order_.leaf; end < depth; end += order_.leaf)
        ends.end[ends.count++] = end;
      ends.end[ends.count++] = depth;
    } else {
      const std::int64_t first = order_.leaves.front() + static_cast<std::int64_t>(k);
      auto leaf = std::upper_bound(order_.leaves.begin(), order_.leaves.end(), first);
      for (; leaf != order_.leaves.end() && *leaf - first <= static_cast<std::int64_t>(depth); ++leaf)
        ends.end[ends.count++] = static_cast<std::size_t>(*leaf - first);
    }
    return ends;
  }
  /// Packed rows and a panel of columns.
  struct Factors {
    TileLeft<Number> a;
    const Number* b;
    std::size_t depth;
    std::span<const std::size_t> leaf_ends;
  };
  static void add_panel(const Factors& f, Number* to, std::size_t stride, std::size_t rows,
                        std::size_t columns, bool fresh, Number* edge) {
    const bool whole = columns == panel;
    if (whole && !fresh)
      return product_in_tiles<TileStore::accumulate>(rows, panel, f.depth, f.a, f.b, panel, to, stride);
    product_in_tiles<TileStore::assign>(rows, panel, f.depth, f.a, f.b, panel, whole ? to : edge,
                                        whole ? stride : panel);
    for (std::size_t r = 0; r < rows && !whole; ++r)
      for (std::size_t l = 0; l < columns; ++l)
        to[r * stride + l] = // a fresh sum is stored as it is, as in whole panels, with the sign of a zero
            fresh ? edge[r * panel + l] : edge[r * panel + l] + to[r * stride + l];
  }
  void add_panel(const Factors& f, FixedPoint* to, std::size_t stride, std::size_t rows, std::size_t columns,
                 bool fresh, Number* edge) const {
    LeafSums sums{f.leaf_ends, fresh};
    if (columns == panel) {
      product_in_tiles<TileStore::accumulate>(rows, panel, f.depth, f.a, f.b, panel, to, stride, sums);
    } else {
      for (std::size_t r = 0; r < rows && fresh; ++r)
        std::fill_n(to + r * stride, columns, FixedPoint{});
      TermAdder adder;
      std::size_t k = 0;
      for (const std::size_t end : f.leaf_ends) {
        product_in_tiles<TileStore::assign>(
            rows, panel, end - k, TileLeft<Number>{f.a.data + k * f.a.step, f.a.row_stride, f.a.step},
            f.b + k * panel, panel, edge, panel);
        k = end;
        for (std::size_t r = 0; r < rows; ++r)
          adder.add(edge + r * panel, columns, to + r * stride);
      }
      sums.all_fit = adder.all_fit();
    }
    if (!sums.all_fit)
      note_fault(order_.fault);
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
    for (std::size_t c = 0; c < block.columns; c += panel)
      for_pieces(part, k, depth, [&](std::size_t at, std::size_t index, std::size_t length) {
        pack_panel<panel>(to + c * depth + at * panel, p_.b.from(index, block.j + c), length,
                          std::min(panel, block.columns - c));
      });
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
        pack_line(piece + line * stride, from + line * p_.a.stride, p_.a.stride, numbers, p_.alpha);
    });
    return {to, transposed ? 1 : depth_block, transposed ? row_block : 1};
  }

  Product<Element, Out> p_;
  ReproducibleProducts order_;
  std::size_t run_;   // indices of a part in one run
  std::size_t width_; // columns of a block
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
  if constexpr (std::is_same_v<Out, FixedPoint>) {
    require(order.fault != nullptr, "matmul",
            "a FixedPoint result needs a flag for terms that do not fit (add to the slot of a parameter).");
    const auto wrong = [](std::int64_t begin, std::int64_t end) {
      return end <= begin || end - begin > shardwright::detail::most_leaf;
    };
    require(std::adjacent_find(order.leaves.begin(), order.leaves.end(), wrong) == order.leaves.end() &&
                (order.leaves.empty() ||
                 static_cast<std::size_t>(order.leaves.back() - order.leaves.front()) == product.k),
            "matmul", "leaves must have 1 to 256 indices each, and together the contracted dimension.");
  }
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
