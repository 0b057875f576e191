// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Copies rows at one stride to contiguous memory, and fills memory with zeros, for elements of any
/// type.

#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// On a device, each thread copies 16 bytes at a time, as integers: a float would lose the payload of a NaN.
template <class Element> struct CopyRows {
  const Element* in;
  Element* out;
  std::size_t row_length;
  std::size_t row_stride;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row, std::size_t begin, std::size_t end) const {
    const Element* const from = in + row * row_stride;
    Element* const to = out + row * row_length;
    if constexpr (lane_threads == 1) {
      __builtin_memcpy(static_cast<void*>(to + begin), from + begin, (end - begin) * sizeof(Element));
    } else {
      using Bits = BitsOf<Element>;
      copy_lanes<true>(reinterpret_cast<const Bits*>(from), reinterpret_cast<Bits*>(to), begin, end);
    }
  }
};

/// Each call copies one element, for rows that are too short for a warp.
template <class Element> struct CopyShortRows {
  const Element* in;
  Element* out;
  std::size_t row_length;
  std::size_t row_stride;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    // A division of 32 bits costs a third of one of 64.
    const std::size_t row = i <= 0xffffffffu
                                ? static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(row_length)
                                : i / row_length;
    out[i] = in[row * row_stride + (i - row * row_length)];
  }
};

template <class Element> struct ZeroElements {
  Element* out;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t, std::size_t begin, std::size_t end) const {
    if constexpr (lane_threads == 1) {
      __builtin_memset(static_cast<void*>(out + begin), 0, (end - begin) * sizeof(Element));
    } else {
      using Bits = BitsOf<Element>;
      auto* const to = reinterpret_cast<Bits*>(out);
      for_chunks<Bits, 1, true>(
          begin, end, [to](auto chunk, std::size_t i) { chunk.store(to + i, Lanes<Bits>{}); }, to);
    }
  }
};

} // namespace detail

/// @brief Rows of `row_length` elements, `row_stride` apart, to contiguous memory; cost: one read and one
/// write of each element. CUB's DeviceCopy would need a table of the rows in the device's memory for every
/// call.
template <class Execution, class Element>
void copy_rows(const Execution& execution, const Element* in, std::size_t rows, std::size_t row_length,
               std::size_t row_stride, Element* out) {
  moves("sw::copy_block", execution, 2 * rows * row_length * sizeof(Element));
  constexpr std::size_t short_row = 256; // bytes: 16 for half of a warp
  if (rows > 1 && row_length * sizeof(Element) < short_row) {
    run("sw::copy_block", execution, rows * row_length,
        detail::CopyShortRows<Element>{in, out, row_length, row_stride});
    return;
  }
  run_pieces("sw::copy_block", execution, rows, row_length, 4096,
             detail::CopyRows<Element>{in, out, row_length, row_stride});
}

/// @brief Fills contiguous memory with zeros.
template <class Execution, class Element>
void zero_elements(const Execution& execution, Element* out, std::size_t count) {
  moves("sw::fill_zero", execution, count * sizeof(Element));
  run_pieces("sw::fill_zero", execution, 1, count, 4096, detail::ZeroElements<Element>{out});
}
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
