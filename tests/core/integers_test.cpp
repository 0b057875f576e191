// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/core/integers.hpp>

#include <limits>

using namespace shardwright;

namespace {
constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
}

TEST_CASE("ceil_div rounds up", "[integers]") {
  for (std::int64_t value = 0; value < 50; ++value)
    for (std::int64_t divisor = 1; divisor < 9; ++divisor) {
      const std::int64_t quotient = ceil_div(value, divisor);
      CHECK(quotient * divisor >= value);
      CHECK((quotient - 1) * divisor < value);
    }
  STATIC_REQUIRE(ceil_div(largest, 2) == largest / 2 + 1);
  STATIC_REQUIRE(ceil_div(largest, largest) == 1);
}

TEST_CASE("checked arithmetic reports overflow", "[integers]") {
  STATIC_REQUIRE(checked_multiply(3, 4).value == 12);
  STATIC_REQUIRE(checked_multiply(0, largest).fits);
  STATIC_REQUIRE(checked_multiply(1, largest).value == largest);
  STATIC_REQUIRE(checked_multiply(largest / 3, 3).fits);
  STATIC_REQUIRE(!checked_multiply(largest / 3 + 1, 3).fits);
  STATIC_REQUIRE(!checked_multiply(std::int64_t{1} << 32, std::int64_t{1} << 31).fits);
}
