// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Host memory that begins at a huge page, for blocks that fill one.

#include <shardwright/core/config.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// On x86-64, and on 64-bit Arm with pages of 4 KiB.
inline constexpr std::size_t huge_page_bytes = std::size_t{1} << 21;

/// Kokkos' host memory. The system is asked for huge pages behind blocks that fill one: every row of a wide
/// matrix is on another small page, so reading columns of it would wait for the translation of addresses.
///
/// Such a block needs huge_page_bytes more of addresses, but no more than two small pages of memory.
[[nodiscard]] inline void* allocate_host(const char* label, std::size_t bytes) {
  if (bytes < huge_page_bytes)
    return Kokkos::kokkos_malloc<Kokkos::HostSpace>(label, bytes);
  auto* const whole =
      static_cast<char*>(Kokkos::kokkos_malloc<Kokkos::HostSpace>(label, bytes + huge_page_bytes));
  char* const block = whole + (huge_page_bytes - reinterpret_cast<std::uintptr_t>(whole) % huge_page_bytes);
  std::memcpy(block - sizeof(whole), &whole, sizeof(whole)); // there is room: `whole` has Kokkos' alignment
#if defined(MADV_HUGEPAGE)
  static_cast<void>(::madvise(block, bytes, MADV_HUGEPAGE)); // fails where the system has none
#endif
  return block;
}

/// @param bytes as given to allocate_host
inline void deallocate_host(void* block, std::size_t bytes) noexcept {
  if (bytes >= huge_page_bytes)
    std::memcpy(&block, static_cast<char*>(block) - sizeof(block), sizeof(block));
  Kokkos::kokkos_free<Kokkos::HostSpace>(block);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
