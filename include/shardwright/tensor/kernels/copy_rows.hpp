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

/// The number whose bits a device moves for an element: a float would lose the payload of a NaN.
template <class Element>
using MovedBits = std::conditional_t<
    sizeof(Element) == 8, std::uint64_t,
    std::conditional_t<sizeof(Element) == 4, std::uint32_t,
                       std::conditional_t<sizeof(Element) == 2, std::uint16_t, std::uint8_t>>>;

/// Each call copies a piece of a row; on a device, each thread copies 16 bytes at a time.
template <class Element> struct CopyRows {
  const Element* in;
  Element* out;
  std::size_t row_length;
  std::size_t row_stride;
  std::size_t grain;
  std::size_t pieces; // of a row

  SHARDWRIGHT_FUNCTION void operator()(std::size_t work) const {
    const std::size_t row = pieces == 1 ? work : work / pieces;
    const std::size_t begin = (work - row * pieces) * grain;
    const std::size_t end = begin + grain < row_length ? begin + grain : row_length;
    const Element* const from = in + row * row_stride;
    Element* const to = out + row * row_length;
    if constexpr (lane_threads == 1) {
      __builtin_memcpy(static_cast<void*>(to + begin), from + begin, (end - begin) * sizeof(Element));
    } else {
      using Bits = MovedBits<Element>;
      static_assert(sizeof(Bits) == sizeof(Element));
      const auto* const source = reinterpret_cast<const Bits*>(from);
      auto* const target = reinterpret_cast<Bits*>(to);
      for_chunks<Bits, 1, true>(
          begin, end,
          [source, target](auto chunk, std::size_t i) { chunk.store(target + i, chunk.load(source + i)); },
          source, target);
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
  std::size_t count;
  std::size_t grain;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    const std::size_t begin = block * grain;
    const std::size_t end = block_end(block, grain, count);
    if constexpr (lane_threads == 1) {
      __builtin_memset(static_cast<void*>(out + begin), 0, (end - begin) * sizeof(Element));
    } else {
      using Bits = MovedBits<Element>;
      static_assert(sizeof(Bits) == sizeof(Element));
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
  constexpr std::size_t short_row = 256; // bytes: 16 for half of a warp
  if (rows > 1 && row_length * sizeof(Element) < short_row) {
    run("sw::copy_block", execution, rows * row_length,
        detail::CopyShortRows<Element>{in, out, row_length, row_stride});
    return;
  }
  const std::size_t grain = lane_grain_of<Execution>(4096);
  const std::size_t pieces = blocks_of(row_length, grain);
  run_lanes("sw::copy_block", execution, rows * pieces,
            detail::CopyRows<Element>{in, out, row_length, row_stride, grain, pieces});
}

/// @brief Fills contiguous memory with zeros.
template <class Execution, class Element>
void zero_elements(const Execution& execution, Element* out, std::size_t count) {
  const std::size_t grain = lane_grain_of<Execution>(4096);
  run_lanes("sw::fill_zero", execution, blocks_of(count, grain),
            detail::ZeroElements<Element>{out, count, grain});
}
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
