// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The cores that this process may use, and the one of the calling thread.

#include <shardwright/core/config.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#endif

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The cores that this process may use, one bit each; none if the system does not report them.
struct UsableCores {
  static constexpr std::size_t words = 16;
  using Bits = std::array<std::uint64_t, words>;
  Bits bits{};

  UsableCores() noexcept {
#if defined(__linux__)
    static_assert(words * 64 == CPU_SETSIZE);
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
      return;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set))
        bits[core / 64] |= std::uint64_t{1} << (core % 64);
#endif
  }
  [[nodiscard]] static int count(const Bits& bits) noexcept {
    int out = 0;
    for (const std::uint64_t word : bits)
      out += std::popcount(word);
    return out;
  }
};

/// Cores that this process may use.
[[nodiscard]] inline int usable_cores() noexcept {
  if (const int known = UsableCores::count(UsableCores().bits); known > 0)
    return known;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN); // <thread> would ask the same, and take longer to compile
  return cores < 1 ? 1 : static_cast<int>(cores);
}

/// The core of the calling thread; -1 if the system does not report it.
[[nodiscard]] inline int this_core() noexcept {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
