// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A hash of the bits and positions of all elements, the same on every target.

#include <shardwright/core/hash.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

template <class Element> struct ChecksumBlocks {
  const Element* x;
  std::size_t count;
  std::uint64_t* partial;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    const std::size_t end = block_end(block, reduce_block, count);
    std::uint64_t sum = 0;
    for (std::size_t i = block * reduce_block + lane_number(); i < end; i += lane_threads) {
      BitsOf<Element> bits{};
      const Element value = x[i]; // one load, where memcpy from memory of unknown alignment has one per byte
      memcpy(&bits, &value, sizeof bits);
      // Multiplication by an odd number separates positions that the bits of small elements would make
      // collide.
      sum += shardwright::detail::mixed(i * 0x9e3779b97f4a7c15u, bits);
    }
    sum = over_threads(sum, PlusLanes{});
    if (first_lane())
      partial[block] = sum;
  }
};

} // namespace detail

/// @brief result[0] = the sum over a contiguous view of a hash of each element's position and bits, modulo
/// 2^64.
///
/// A sum has no order, so every target gives the same. Views that differ in one element have different
/// checksums; other different views have equal checksums with a probability of 2^-64.
/// @param result     std::uint64_t [1 or more]
/// @param workspace  std::uint64_t [reduce_workspace(size)]
template <class Execution, KernelView X, KernelVector Result, KernelVector Work>
void checksum(const Execution& execution, const X& x, const Result& result, const Work& workspace) {
  using Blocks = detail::ChecksumBlocks<typename X::non_const_value_type>;
  detail::run_sum<Blocks>("checksum", "checksum", execution, false, result, workspace, x);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
