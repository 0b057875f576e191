// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A 64-bit mixing function, for hashes that ranks compare.

#include <shardwright/core/config.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Mixing of SplitMix64 (Steele, Lea, Flood 2014): one to one in each argument.
[[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::uint64_t mixed(std::uint64_t state,
                                                                 std::uint64_t value) noexcept {
  std::uint64_t z = (state ^ value) + 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
