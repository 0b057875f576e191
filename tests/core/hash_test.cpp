// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/core/hash.hpp>

#include <cstdint>

using shardwright::detail::Fnv1a;
using shardwright::detail::mixed;

TEST_CASE("FNV-1a gives the published values", "[core]") {
  STATIC_REQUIRE(Fnv1a().value() == 0xcbf29ce484222325U);
  STATIC_REQUIRE(Fnv1a().add("a").value() == 0xaf63dc4c8601ec8cU);
  STATIC_REQUIRE(Fnv1a().add("foobar").value() == 0x85944171f73967e8U);
  STATIC_REQUIRE(Fnv1a().add("foo").add(std::uint64_t{'b'}).add("ar").value() ==
                 Fnv1a().add("foobar").value());
}

TEST_CASE("mixing depends on the order of its values", "[core]") {
  STATIC_REQUIRE(mixed(mixed(0, 1), 2) != mixed(mixed(0, 2), 1));
  STATIC_REQUIRE(mixed(1, 0) != mixed(0, 0));
}
