// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief 64-bit hashes that ranks compare: a mixing function, and FNV-1a over a sequence.

#include <shardwright/core/config.hpp>

#include <cstdint>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Mixing of SplitMix64 (Steele, Lea, Flood 2014): one to one in each argument.
[[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::uint64_t mixed(std::uint64_t state,
                                                                 std::uint64_t value) noexcept {
  std::uint64_t z = (state ^ value) + 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

/// FNV-1a (Fowler, Noll and Vo), 64 bits, over a sequence of bytes or numbers: an identity check, not a
/// cryptographic hash.
class Fnv1a {
public:
  constexpr Fnv1a& add(std::uint64_t value) noexcept {
    hash_ = (hash_ ^ value) * 0x100000001b3U;
    return *this;
  }
  constexpr Fnv1a& add(std::string_view bytes) noexcept {
    for (const char byte : bytes)
      add(std::uint64_t{static_cast<unsigned char>(byte)});
    return *this;
  }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return hash_; }

private:
  std::uint64_t hash_ = 0xcbf29ce484222325U;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
