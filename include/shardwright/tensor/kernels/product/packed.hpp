// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Copies of blocks of a product's factors, as numbers of arithmetic, in the order in which register
/// tiles read them.

#include <shardwright/core/element.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/lanes/transposed.hpp>
#include <shardwright/tensor/kernels/product/portable.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// A factor's columns side by side, and zeros up to a panel.
template <std::size_t panel, class Element>
void pack_panel(AccumulationElement<Element>* to, const Factor<Element>& from, std::size_t depth,
                std::size_t columns) {
  using Number = AccumulationElement<Element>;
  constexpr std::size_t width = lane_count<Number>;
  if (columns < panel)
    std::fill_n(to, depth * panel, Number(0));
  const std::size_t whole = columns / width * width;
  const std::size_t squares = from.transposed ? depth / width * width : depth;
  const auto load = [&from](std::size_t k, std::size_t c) {
    return load_lanes<Element, width>(from.from(k, c).data);
  };
  for (std::size_t k = 0; k < depth && !from.transposed; ++k)
    for (std::size_t c = 0; c < whole; c += width)
      store_lanes<Number, width>(to + k * panel + c, load(k, c));
  for (std::size_t k = 0; k < squares && from.transposed; k += width)
    for (std::size_t c = 0; c < whole; c += width) {
      Lanes<Number> lines[width];
      for (std::size_t l = 0; l < width; ++l)
        lines[l] = load(k, c + l);
      transpose_registers(lines, std::make_index_sequence<width>{});
      for (std::size_t l = 0; l < width; ++l)
        store_lanes<Number, width>(to + (k + l) * panel + c, lines[l]);
    }
  for (std::size_t k = 0; k < depth; ++k)
    for (std::size_t c = k < squares ? whole : 0; c < columns; ++c)
      to[k * panel + c] = static_cast<Number>(*from.from(k, c).data);
}

/// A stored line of the left factor times alpha. Hardware fetches ahead anew for every line, and is late.
template <class Element>
void pack_line(AccumulationElement<Element>* to, const Element* from, std::size_t stride, std::size_t count,
               AccumulationElement<Element> alpha) {
  using Number = AccumulationElement<Element>;
  constexpr std::size_t width = lane_count<Number>;
  std::size_t l = 0;
  for (; l + width <= count; l += width) {
    __builtin_prefetch(from + 4 * stride + l);
    store_lanes<Number, width>(to + l, alpha * load_lanes<Element, width>(from + l));
  }
  for (; l < count; ++l)
    to[l] = alpha * static_cast<Number>(from[l]);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
