// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/layout/attention_mask.hpp>

#include <cstddef>
#include <type_traits>

namespace {

using namespace shardwright;

static_assert(AttentionMask<CausalMask> && AttentionMask<FullMask> && AttentionMask<SlidingWindowMask<4>>);
static_assert(!AttentionMask<KeyWindow> && !AttentionMask<int>);
static_assert(std::is_empty_v<CausalMask> && std::is_empty_v<FullMask> &&
              std::is_empty_v<SlidingWindowMask<4>>);
static_assert(decltype(sliding_window<128>)::window == KeyWindow{127, 0});

constexpr std::size_t sequence = 12;

/// Every function of a window against the definition of the keys that are seen.
template <class Sees> void check(const KeyWindow& window, Sees sees) {
  for (std::size_t query = 0; query < sequence; ++query)
    for (std::size_t key = 0; key < sequence; ++key) {
      const bool seen = sees(query, key);
      REQUIRE(window.sees(query, key) == seen);
      REQUIRE((window.first_key(query) <= key && key < window.end_key(query)) == seen);
      REQUIRE((window.first_query(key) <= query && query < window.end_query(key)) == seen);
    }
  for (std::size_t position = 1; position < sequence; ++position) {
    REQUIRE(window.first_key(position - 1) <= window.first_key(position));
    REQUIRE(window.end_key(position - 1) <= window.end_key(position));
  }
}

} // namespace

TEST_CASE("a window determines which keys a query sees, and which queries see a key") {
  check(causal.window, [](std::size_t query, std::size_t key) { return key <= query; });
  check(full.window, [](std::size_t, std::size_t) { return true; });
  check(sliding_window<1>.window, [](std::size_t query, std::size_t key) { return key == query; });
  check(sliding_window<3>.window,
        [](std::size_t query, std::size_t key) { return key <= query && query < key + 3; });
  check(sliding_window<100>.window, [](std::size_t query, std::size_t key) { return key <= query; });
  // Not a mask of the library, but one that a program may create.
  for (std::size_t before = 0; before < 4; ++before)
    for (std::size_t after = 0; after < 4; ++after)
      check({before, after}, [=](std::size_t query, std::size_t key) {
        return query <= key + before && key <= query + after;
      });
}
