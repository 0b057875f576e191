// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The size of the last-level cache of a core, by which a transport chooses how to copy.

#include <shardwright/core/config.hpp>

#include <cstddef>
#include <cstdio>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Bytes of the last-level cache that one core can use; 32 MiB if the system does not report it.
[[nodiscard]] inline std::size_t last_level_cache_bytes() noexcept {
  static const std::size_t bytes = [] {
    unsigned long kibibytes = 0;
#if defined(__linux__)
    // The C library may report the caches of a whole processor, of which a core can use only a part.
    if (std::FILE* const file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r")) {
      if (std::fscanf(file, "%luK", &kibibytes) != 1)
        kibibytes = 0;
      std::fclose(file);
    }
#endif
#if defined(_SC_LEVEL3_CACHE_SIZE)
    if (const long all = sysconf(_SC_LEVEL3_CACHE_SIZE); kibibytes == 0 && all > 0)
      return static_cast<std::size_t>(all);
#endif
    return std::size_t{kibibytes > 0 ? kibibytes : 32UL << 10U} << 10U;
  }();
  return bytes;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
