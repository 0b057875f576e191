// SPDX-License-Identifier: Apache-2.0

#include <shardwright/core/philox.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <set>

namespace sw = shardwright;

// Known answers of the authors' Random123 distribution: zeros, ones, and digits of pi.
TEST_CASE("Philox4x32-10 gives the published answers") {
  STATIC_REQUIRE(sw::philox4x32_10({{0, 0, 0, 0}}, 0) ==
                 sw::PhiloxWords{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  STATIC_REQUIRE(sw::philox4x32_10({{~0u, ~0u, ~0u, ~0u}}, ~std::uint64_t{0}) ==
                 sw::PhiloxWords{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  STATIC_REQUIRE(sw::philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822) ==
                 sw::PhiloxWords{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST_CASE("Every part of the key and of the index changes the words") {
  const std::uint64_t high = std::uint64_t{1} << 32;
  std::set<std::uint32_t> words;
  std::size_t expected = 0;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, high}) {
    for (const std::uint64_t tensor : {std::uint64_t{0}, std::uint64_t{1}, high}) {
      for (const std::uint64_t group : {std::uint64_t{0}, std::uint64_t{1}, high}) {
        for (const std::uint32_t word : sw::random_words({seed, tensor}, group).word) {
          words.insert(word);
          ++expected;
        }
      }
    }
  }
  REQUIRE(words.size() == expected);
}

TEST_CASE("The unit interval is open at both ends") {
  STATIC_REQUIRE(sw::unit_interval(0) > 0.0);
  STATIC_REQUIRE(sw::unit_interval(~0u) < 1.0);
  STATIC_REQUIRE(sw::unit_interval(0x80000000u) > 0.5);
}
