// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Swaps two dimensions of a block.

#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Extents of a block around the two swapped dimensions.
struct TransposeShape {
  std::size_t outer = 1; ///< Before both.
  std::size_t first = 1;
  std::size_t middle = 1; ///< Between them.
  std::size_t second = 1;
  std::size_t inner = 1; ///< After both.

  [[nodiscard]] constexpr std::size_t size() const noexcept {
    return outer * first * middle * second * inner;
  }
};

namespace detail {

/// A call handles a square of both dimensions, so that its reads and writes stay in cache.
template <class Element> struct TransposeTiles {
  static constexpr std::size_t tile = 16;
  const Element* in;
  Element* out;
  TransposeShape shape;
  std::size_t first_tiles;
  std::size_t second_tiles;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t work) const {
    const std::size_t n = work % second_tiles * tile;
    const std::size_t m = work / second_tiles % first_tiles * tile;
    const std::size_t pair = work / second_tiles / first_tiles;
    const std::size_t b = pair % shape.middle;
    const std::size_t a = pair / shape.middle;
    const std::size_t n_end = n + tile < shape.second ? n + tile : shape.second;
    const std::size_t m_end = m + tile < shape.first ? m + tile : shape.first;
    if constexpr (lane_threads == 1) {
      for (std::size_t j = n; j < n_end; ++j)
        for (std::size_t i = m; i < m_end; ++i) {
          const Element* from = in + source(a, i, b, j);
          Element* to = out + target(a, i, b, j);
          for (std::size_t c = 0; c < shape.inner; ++c)
            to[c] = from[c];
        }
    } else {
      const std::size_t row = (n_end - n) * shape.inner;
      for (std::size_t k = lane_number(); k < (m_end - m) * row; k += lane_threads) {
        const std::size_t i = m + k / row;
        const std::size_t j = n + k % row / shape.inner;
        const std::size_t c = k % shape.inner;
        out[target(a, i, b, j) + c] = in[source(a, i, b, j) + c];
      }
    }
  }

private:
  SHARDWRIGHT_FUNCTION std::size_t source(std::size_t a, std::size_t i, std::size_t b, std::size_t j) const {
    return (((a * shape.first + i) * shape.middle + b) * shape.second + j) * shape.inner;
  }
  SHARDWRIGHT_FUNCTION std::size_t target(std::size_t a, std::size_t i, std::size_t b, std::size_t j) const {
    return (((a * shape.second + j) * shape.middle + b) * shape.first + i) * shape.inner;
  }
};

} // namespace detail

/// @brief out[outer, second, middle, first, inner] = x[outer, first, middle, second, inner], of any element.
/// @param x, out contiguous, of the size of `shape`, not overlapping
/// @throws InvalidArgument for views of another size, or that are not contiguous.
template <class Execution, KernelView X, KernelView Out>
void transpose(const Execution& execution, const X& x, const Out& out, const TransposeShape& shape) {
  using Functor = detail::TransposeTiles<typename Out::value_type>;
  const auto from = flat_span_of(x, "transpose");
  const auto to = flat_span_of(out, "transpose");
  require(from.size == shape.size() && to.size == shape.size(), "transpose",
          "both views must have the elements of the shape.");
  if (shape.size() == 0)
    return;
  const std::size_t first_tiles = blocks_of(shape.first, Functor::tile);
  const std::size_t second_tiles = blocks_of(shape.second, Functor::tile);
  moves("sw::transpose", execution, from, to);
  run_lanes("sw::transpose", execution, shape.outer * shape.middle * first_tiles * second_tiles,
            Functor{from.data, to.data, shape, first_tiles, second_tiles});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
