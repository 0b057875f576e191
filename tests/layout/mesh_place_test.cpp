// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/mesh_place.hpp>

#include <array>
#include <cstdint>

namespace sw = shardwright;
using namespace sw::axis;

TEST_CASE("a place on a mesh determines the rank's block, even if blocks are uneven") {
  using Rows = sw::Layout<2, sw::Shard<0, dp, tp>>;
  constexpr sw::MeshShape mesh{sw::extent<dp>(4), sw::extent<tp>(2)};
  // 13 rows over 4 x 2: the last rank has none.
  STATIC_REQUIRE(sw::MeshPlace(mesh, 0).elements<Rows>(std::array<std::int64_t, 2>{13, 5}) == 10);
  STATIC_REQUIRE(sw::MeshPlace(mesh, 6).elements<Rows>(std::array<std::int64_t, 2>{13, 5}) == 5);
  STATIC_REQUIRE(sw::MeshPlace(mesh, 7).elements<Rows>(std::array<std::int64_t, 2>{13, 5}) == 0);
  using OverCp = sw::Layout<1, sw::Shard<0, cp>>;
  const std::array<std::int64_t, 1> length{4};
  STATIC_REQUIRE(mesh.extent_of<cp>() == 1);
  CHECK(sw::MeshPlace(mesh, 5).elements<OverCp>(length) == 4);
}
