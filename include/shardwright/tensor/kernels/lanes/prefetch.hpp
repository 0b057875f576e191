// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Requests for host memory that a kernel reads or writes soon.

#include <shardwright/core/config.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Asks for the cache lines 2 KiB after these addresses, in streams of long contiguous rows: hardware that
/// fetches ahead begins anew at every row and page. A line beyond the end is harmless.
///
/// Only for kernels with much arithmetic for each line; others are faster without it.
template <class... Elements>
SHARDWRIGHT_FUNCTION inline void prefetch_ahead([[maybe_unused]] const Elements*... streams) {
#if !defined(__CUDA_ARCH__)
  constexpr std::uintptr_t distance = 2048;
  (__builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(streams) + distance), 0,
                      2),
   ...);
#endif
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
