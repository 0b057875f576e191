// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/mesh/reproducible.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace sw = shardwright;

using Ordered = sw::Reproducible<sw::DefaultTarget>;
static_assert(sw::Target<Ordered> && sw::is_reproducible<Ordered> && !sw::is_reproducible<sw::DefaultTarget>);
static_assert(std::is_same_v<sw::detail::GradientElement<sw::bfloat16, Ordered>, sw::FixedPoint>);
static_assert(std::is_same_v<sw::detail::GradientElement<sw::bfloat16, sw::DefaultTarget>, float>);

TEST_CASE("a FixedPoint is the nearest multiple of its unit", "[reproducible]") {
  CHECK(sw::FixedPoint::of(1.0F).units == std::int64_t{1} << 32);
  CHECK(sw::FixedPoint::of(-0x1p-32F).units == -1);
  CHECK(sw::FixedPoint::of(0x1.8p-32F).units == 2); // halfway: to even
  CHECK(sw::FixedPoint::of(0x1.4p-33F).units == 1);
  CHECK(static_cast<float>(sw::FixedPoint::of(-1234.5F)) == -1234.5F);

  CHECK(sw::FixedPoint::fits(std::nextafter(8192.0F, 0.0F)));
  for (const float beyond :
       {8192.0F, -8192.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    CHECK_FALSE(sw::FixedPoint::fits(beyond));
}

TEST_CASE("sums of loss terms do not depend on the order", "[reproducible]") {
  double forward = 0, backward = 0;
  const auto term = [](int i) { return sw::detail::loss_term(11.0 / (3 + i)); };
  for (int i = 0; i < 1000; ++i) {
    forward += term(i);
    backward += term(999 - i);
  }
  CHECK(forward == backward);
  CHECK(std::abs(sw::detail::loss_term(0.1) - 0.1) <= 0x1p-25);
  CHECK(std::isnan(sw::detail::loss_term(std::numeric_limits<double>::quiet_NaN())));
}

TEST_CASE("a leaf of tokens is cut by no mesh", "[reproducible]") {
  const auto leaf = [](std::int64_t batch, std::int64_t sequence) {
    return sw::detail::leaf_rows(std::array{batch, sequence});
  };
  CHECK(leaf(3, 4096) == 256);
  CHECK(leaf(1, 8192) == 256);
  CHECK(leaf(7, 96) == 2); // 16 pieces of 6 tokens
  CHECK(leaf(1, 1024) == 64);
  CHECK(leaf(1, 66) == 2); // 4 are in a sixteenth, but do not divide the sequence
  CHECK(leaf(1, 33) == 1);
  CHECK(leaf(2, 8) == 1);
  CHECK(sw::detail::leaf_rows(std::array{std::int64_t{4096}}) == 1);
}
