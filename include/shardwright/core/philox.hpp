// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Philox4x32-10, a counter-based generator: random numbers keyed by (seed, tensor, global element
/// index).

#include <shardwright/core/config.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The key of a stream of random numbers: the seed of the run and the number of the tensor.
///
/// A use that needs fresh numbers at every step (dropout) mixes the step into `tensor`.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t tensor = 0;
};

/// @brief Four words: a counter, or the random words generated from it.
struct PhiloxWords {
  std::uint32_t word[4];

  friend constexpr bool operator==(const PhiloxWords&, const PhiloxWords&) = default;
};

namespace detail {

/// Turns counters into random words, word by word; the inner loop is over counters, so that compilers
/// vectorise it.
template <std::size_t counters>
SHARDWRIGHT_FUNCTION constexpr void philox_rounds(std::uint32_t (&word)[4][counters], std::uint64_t key) {
  std::uint32_t key0 = static_cast<std::uint32_t>(key);
  std::uint32_t key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < counters; ++i) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * word[0][i];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * word[2][i];
      word[0][i] = static_cast<std::uint32_t>(product1 >> 32) ^ word[1][i] ^ key0;
      word[1][i] = static_cast<std::uint32_t>(product1);
      word[2][i] = static_cast<std::uint32_t>(product0 >> 32) ^ word[3][i] ^ key1;
      word[3][i] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

} // namespace detail

/// @brief The random words of one counter under one 64-bit key, low word first.
///
/// Philox4x32 with 10 rounds: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
/// SC11.
[[nodiscard]] SHARDWRIGHT_FUNCTION constexpr PhiloxWords philox4x32_10(PhiloxWords counter,
                                                                       std::uint64_t key) {
  std::uint32_t word[4][1] = {{counter.word[0]}, {counter.word[1]}, {counter.word[2]}, {counter.word[3]}};
  detail::philox_rounds(word, key);
  return {{word[0][0], word[1][0], word[2][0], word[3][0]}};
}

/// @brief The four words of group `group` of a stream; element i of a tensor uses word i % 4 of group i / 4.
[[nodiscard]] SHARDWRIGHT_FUNCTION constexpr PhiloxWords random_words(RandomKey key, std::uint64_t group) {
  return philox4x32_10(
      {{static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32),
        static_cast<std::uint32_t>(key.tensor), static_cast<std::uint32_t>(key.tensor >> 32)}},
      key.seed);
}

/// @brief A word as a number in the open interval (0, 1), in steps of 2^-32.
[[nodiscard]] SHARDWRIGHT_FUNCTION constexpr double unit_interval(std::uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
