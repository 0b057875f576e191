// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Forms in which frozen weights are stored in 8 or 4 bits: blocks of elements with a scale each.

#include <shardwright/core/config.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @name Forms of quantized weights
///
/// 64 consecutive elements of the last dimension are a block: a float, its scale, and a code for each
/// element.
/// @{

/// @brief A code in -127..127: the element is code * scale, with the scale max |w| / 127.
struct Int8 {
  static constexpr std::string_view name = "int8";
  static constexpr std::int64_t bits = 8;
};
/// @brief One of the 16 values of NormalFloat4 (Dettmers et al., arXiv 2305.14314, appendix E): the element
/// is value * scale, with the scale max |w|. 0.28 of the bytes of bfloat16.
struct NormalFloat4 {
  static constexpr std::string_view name = "nf4";
  static constexpr std::int64_t bits = 4;
};
/// @}

namespace detail {

/// A word of a tensor in such a form. A block is a scale, then the codes.
using QuantizedWord = std::uint32_t;
inline constexpr std::int64_t quantized_block = 64; // elements
template <class Form> inline constexpr std::int64_t words_of_block = 1 + quantized_block* Form::bits / 32;

template <class Form>
inline constexpr bool is_form = std::is_same_v<Form, Int8> || std::is_same_v<Form, NormalFloat4>;

/// Checks that a layout can be that of blocks, with an error sentence if not.
template <class L> struct BlocksIn {
  static_assert(
      !L::value.has_partial() && !L::value.has_halos(),
      "Quantized weights: their layout must not be Partial or have halos, which would cut or repeat blocks (keep such weights whole, with Frozen<Zero>)");
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
