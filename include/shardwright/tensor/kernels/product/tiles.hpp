// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Matrix products of small operands in cache, in register tiles, for attention and for builds without
/// BLAS.

#include <shardwright/core/config.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// The left operand of a tile product: element (i, k) is data[i * row_stride + k * step].
template <class Element> struct TileLeft {
  const Element* data;
  std::size_t row_stride;
  std::size_t step;
};

/// The way in which a tile product's result is stored.
enum class TileStore { assign, accumulate };

/// sums += A B for `rows` rows and `registers` registers of columns: B has contiguous rows.
template <int rows, int registers, class Element>
SHARDWRIGHT_FUNCTION inline __attribute__((always_inline)) void
add_products(TileLeft<Element> a, const Element* b, std::size_t b_stride, std::size_t depth,
             Lanes<Element> (&sums)[rows][registers]) {
  constexpr std::size_t width = lane_count<Element>;
  constexpr WholeChunk<Element> whole;
  for (std::size_t k = 0; k < depth; ++k) {
    Lanes<Element> right[registers];
    for (int r = 0; r < registers; ++r)
      right[r] = whole.load(b + k * b_stride + static_cast<std::size_t>(r) * width);
    for (int i = 0; i < rows; ++i) {
      const Element left = a.data[static_cast<std::size_t>(i) * a.row_stride + k * a.step];
      for (int r = 0; r < registers; ++r)
        sums[i][r] += left * right[r];
    }
  }
}

/// C = A B or C += A B, where C has contiguous rows, too.
///
/// Not inlined, because a caller with several products would run out of registers.
template <TileStore store, int rows, int registers, class Element>
SHARDWRIGHT_FUNCTION __attribute__((noinline)) void tile_product(TileLeft<Element> a, const Element* b,
                                                                 std::size_t b_stride, std::size_t depth,
                                                                 Element* c, std::size_t c_stride) {
  constexpr std::size_t width = lane_count<Element>;
  constexpr WholeChunk<Element> whole;
  Lanes<Element> sums[rows][registers] = {};
  add_products(a, b, b_stride, depth, sums);
  for (int i = 0; i < rows; ++i) {
    Element* to = c + static_cast<std::size_t>(i) * c_stride;
    for (int r = 0; r < registers; ++r) {
      Element* at = to + static_cast<std::size_t>(r) * width;
      if constexpr (store == TileStore::accumulate)
        whole.store(at, whole.load(at) + sums[i][r]);
      else
        whole.store(at, sums[i][r]);
    }
  }
}

// The sums of a tile and one row of the right operand fill the registers: 32 with AVX-512, else 16.
#if defined(__AVX512F__)
inline constexpr int wide_tile = 4;
inline constexpr int tall_tile = 12;
#else
inline constexpr int wide_tile = 2;
inline constexpr int tall_tile = 6;
#endif

/// All row tiles of one column tile: tiles of `rows` rows, then of half as many, so that few rows are left to
/// go one by one.
template <TileStore store, int rows, int registers, class Element, class To, class... With>
SHARDWRIGHT_FUNCTION inline void tile_rows(std::size_t begin, std::size_t end, const TileLeft<Element>& a,
                                           const Element* b, std::size_t b_stride, std::size_t depth, To* c,
                                           std::size_t c_stride, With&... with) {
  std::size_t i = begin;
  for (; i + rows <= end; i += rows) {
    tile_product<store, rows, registers>(TileLeft<Element>{a.data + i * a.row_stride, a.row_stride, a.step},
                                         b, b_stride, depth, c + i * c_stride, c_stride, with...);
  }
  if constexpr (rows > 1) {
    constexpr int fewer = rows > 8 ? 8 : rows > 4 ? 4 : rows / 2;
    if (i < end)
      tile_rows<store, fewer, registers>(i, end, a, b, b_stride, depth, c, c_stride, with...);
  }
}

/// C[rows, columns] = A B or += A B; `columns` is a multiple of lane_count. `with` is what an overload of
/// tile_product for another element of C takes in addition.
template <TileStore store, class Element, class To, class... With>
SHARDWRIGHT_FUNCTION inline void product_in_tiles(std::size_t rows, std::size_t columns, std::size_t depth,
                                                  TileLeft<Element> a, const Element* b, std::size_t b_stride,
                                                  To* c, std::size_t c_stride, With&... with) {
  constexpr std::size_t width = lane_count<Element>;
  std::size_t j = 0;
  if constexpr (wide_tile == 4) {
    for (; j + 4 * width <= columns; j += 4 * width) {
      // Two tiles of four rows are faster than six and two.
      const std::size_t sixes = rows % 6 == 2 && rows >= 8 ? rows - 8 : rows;
      tile_rows<store, 6, 4>(0, sixes, a, b + j, b_stride, depth, c + j, c_stride, with...);
      tile_rows<store, 4, 4>(sixes, rows, a, b + j, b_stride, depth, c + j, c_stride, with...);
    }
  }
  for (; j + 2 * width <= columns; j += 2 * width) {
    tile_rows<store, tall_tile, 2>(0, rows, a, b + j, b_stride, depth, c + j, c_stride, with...);
  }
  if (j < columns)
    tile_rows<store, 8, 1>(0, rows, a, b + j, b_stride, depth, c + j, c_stride, with...);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
