// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The plan of a matrix product over a grid of ranks: which panels of the operands move, from where.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/block.hpp>
#include <shardwright/layout/layout.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A range of the contracted dimension that one rank of each row and of each column holds.
struct ProductPanel {
  DimensionBlock range;
  int column =
      0;       ///< Where the left operand's panel is: the place along the axes of the columns, major first.
  int row = 0; ///< Where the right operand's panel is: the place along the axes of the rows.

  friend constexpr bool operator==(const ProductPanel&, const ProductPanel&) = default;
};

namespace detail {

/// Whether a layout splits the rows and the columns of a matrix over a grid of ranks.
template <class L>
inline constexpr bool is_grid = L::tensor_rank == 2 && !L::value.has_partial() && !L::value.has_halos() &&
                                !L::value.shard(0).empty() && !L::value.shard(1).empty();
template <class L>
requires is_ragged<L>
inline constexpr bool is_grid<L> = false;

/// Whether a product of these operands is one over a grid.
template <class Left, class Right>
inline constexpr bool over_grid = is_grid<Left>&& std::is_same_v<Left, Right>;

/// Whether a layout is that of sums over further axes of matrices on a grid.
template <class Grid, class To> constexpr bool is_sum_of_grid() {
  if constexpr (!LayoutType<To>) {
    return false;
  } else if constexpr (To::tensor_rank != 2 || is_ragged<To>) {
    return false;
  } else {
    LayoutValue complete = To::value;
    bool sums = complete.has_partial();
    for (int axis = 0; axis < static_cast<int>(To::axes.size()); ++axis) {
      sums = sums && (!complete.is_partial(axis) || complete.op(axis) == ReduceOp::sum);
      complete.clear_partial(axis);
    }
    return sums && complete == value_over<typename To::axis_list, Grid>();
  }
}

/// Ranks along axes.
[[nodiscard]] constexpr int places(const AxisSequence& axes, std::span<const int> extents) {
  int out = 1;
  for (const int axis : axes)
    out *= extents[static_cast<std::size_t>(axis)];
  return out;
}
/// The place of coordinates along axes, major to minor.
[[nodiscard]] constexpr int place_of(const AxisSequence& axes, std::span<const int> extents,
                                     std::span<const int> coordinates) {
  int out = 0;
  for (const int axis : axes)
    out = out * extents[static_cast<std::size_t>(axis)] + coordinates[static_cast<std::size_t>(axis)];
  return out;
}
/// The coordinates of a place; 0 on all other axes.
[[nodiscard]] constexpr std::array<int, max_axes> at_place(const AxisSequence& axes,
                                                           std::span<const int> extents, int place) {
  std::array<int, max_axes> out{};
  for (int i = axes.count; i-- > 0;) {
    const auto axis = static_cast<std::size_t>(axes[i]);
    out[axis] = place % extents[axis];
    place /= extents[axis];
  }
  return out;
}

} // namespace detail

/// @brief The plan of C = A B, where A, B and C are split alike over a grid: `Result` is the layout of C,
/// Layout<2, Shard<0, i>, Shard<1, j>>.
///
/// A rank computes its block of C from all panels of its rows of A, each broadcast along j by the rank that
/// holds it, and of its columns of B, broadcast along i: SUMMA (van de Geijn and Watts, Concurrency 9(4),
/// 1997). If `Result` is also Partial<Sum, depth>, over axes along which A and B are replicated, every rank
/// along them takes one chunk of the panels: the 2.5-D algorithm (Solomonik and Demmel, Euro-Par 2011).
/// Arguments `extents` and `coordinates` are per axis of `Result::axes`.
template <LayoutType Result> struct GridProduct {
  /// Longest panel along the contracted dimension.
  static constexpr std::int64_t panel_width = 256;

  static constexpr const AxisSequence& row_axes = Result::value.shard(0);
  static constexpr const AxisSequence& column_axes = Result::value.shard(1);
  /// Axes over which the panels are shared out.
  static constexpr AxisSequence depth_axes = [] {
    AxisSequence out;
    for (int axis = 0; axis < max_axes; ++axis)
      if (Result::value.is_partial(axis))
        out.push_back(axis);
    return out;
  }();

  /// @brief Calls `visit(panel)` for the panels that the rank at `coordinates` multiplies, in order.
  /// @param k extent of the contracted dimension
  template <class Visit>
  static constexpr void for_each_panel(std::span<const int> extents, std::span<const int> coordinates,
                                       std::int64_t k, Visit visit) {
    const DimensionBlock share = chunk_of({0, k}, detail::places(depth_axes, extents),
                                          detail::place_of(depth_axes, extents, coordinates));
    const auto end_of = [&](int dimension, int place) {
      const auto at = detail::at_place(Result::value.shard(dimension), extents, place);
      const DimensionBlock block = dimension_block(Result::value, dimension, extents, at, k);
      return block.offset + block.size;
    };
    const std::int64_t end = share.offset + share.size;
    ProductPanel panel;
    for (std::int64_t at = share.offset; at < end; at += panel.range.size) {
      while (end_of(1, panel.column) <= at)
        ++panel.column;
      while (end_of(0, panel.row) <= at)
        ++panel.row;
      const std::int64_t stop = std::min(end_of(1, panel.column), end_of(0, panel.row));
      panel.range = {at, std::min({stop, end, at + panel_width}) - at};
      visit(panel);
    }
  }

  /// @brief Panels that rank 0 multiplies, each of which is at most one broadcast along the rows and one
  /// along the columns.
  [[nodiscard]] static constexpr int steps(std::span<const int> extents, std::int64_t k) {
    int out = 0;
    for_each_panel(extents, std::array<int, max_axes>{}, k, [&](const ProductPanel&) { ++out; });
    return out;
  }

  /// @brief Bytes that rank 0, whose blocks are the largest, receives.
  /// @param shape rows of A, the contracted dimension, columns of B
  [[nodiscard]] static constexpr std::int64_t
  bytes(std::span<const int> extents, const std::array<std::int64_t, 3>& shape, std::size_t element_bytes) {
    constexpr std::array<int, max_axes> first{};
    const std::int64_t rows = dimension_block(Result::value, 0, extents, first, shape[0]).size;
    const std::int64_t columns = dimension_block(Result::value, 1, extents, first, shape[2]).size;
    std::int64_t elements = 0;
    for_each_panel(extents, first, shape[1], [&](const ProductPanel& panel) {
      elements += panel.range.size * ((panel.column != 0 ? rows : 0) + (panel.row != 0 ? columns : 0));
    });
    return elements * static_cast<std::int64_t>(element_bytes);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
