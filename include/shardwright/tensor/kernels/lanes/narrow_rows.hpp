// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Converts rows of 16-bit elements to contiguous rows of floats, and back.

#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// One row per call.
template <class Element> struct WidenRows {
  const Element* from;
  std::size_t stride;
  float* to;
  std::size_t columns;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    copy_lanes(from + row * stride, to + row * columns, 0, columns);
  }
};

/// One row per call: rounded(sum + beta old).
template <class Out> struct RoundRows {
  using Number = AccumulationElement<Out>;
  const Number* from;
  std::size_t columns;
  Number beta;
  Out* to;
  std::size_t stride;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    const Number* in = from + row * columns;
    Out* out = to + row * stride;
    const Number scale = beta;
    for_chunks<Number>(
        0, columns,
        [in, out, scale](auto chunk, std::size_t i) {
          chunk.store(out + i,
                      scale == 0 ? chunk.load(in + i) : chunk.load(in + i) + scale * chunk.load(out + i));
        },
        in, out);
  }
};

/// The numbers as if stored as elements and loaded again; `count` is a multiple of the lanes.
template <class Element> void round_numbers(AccumulationElement<Element>* numbers, std::size_t count) {
  using Number = AccumulationElement<Element>;
  if constexpr (is_narrow<Element>)
    for (std::size_t i = 0; i < count; i += lane_count<Number>)
      store_lanes<Number, lane_count<Number>>(
          numbers + i,
          stored_lanes<Element, lane_count<Number>>(load_lanes<Number, lane_count<Number>>(numbers + i)));
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
