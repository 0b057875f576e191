// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Conversions of 16-bit elements on NVIDIA GPUs, by the instructions that CUDA's headers name.

#include <shardwright/core/element.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Two floats as 16-bit elements in one word, the first in the lower half.
template <class Element> __device__ inline std::uint32_t cuda_packed_pair(float first, float second) {
  std::uint32_t word;
  if constexpr (std::is_same_v<Element, bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    __builtin_memcpy(&word, &pair, sizeof(word));
  } else {
    const __half2 pair = __floats2half2_rn(first, second);
    __builtin_memcpy(&word, &pair, sizeof(word));
  }
  return word;
}

/// A float as a 16-bit element.
template <class Element> __device__ inline Element cuda_rounded(float number) {
  if constexpr (std::is_same_v<Element, bfloat16>)
    return Element::from_bits(__bfloat16_as_ushort(__float2bfloat16_rn(number)));
  else
    return Element::from_bits(__half_as_ushort(__float2half_rn(number)));
}

/// The number of a 16-bit element.
template <class Element> __device__ inline float cuda_widened(std::uint16_t bits) {
  if constexpr (std::is_same_v<Element, bfloat16>)
    return __bfloat162float(__ushort_as_bfloat16(bits));
  else
    return __half2float(__ushort_as_half(bits));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
