// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/layout/mesh_shape.hpp>

#include <array>
#include <numeric>
#include <string_view>
#include <vector>

using namespace shardwright;
using namespace shardwright::axis;
using shardwright_test::ContainsSubstring;

namespace {

struct towers : axis_tag<towers> {
  static constexpr std::string_view name = "towers";
  static constexpr bool divides_model = true;
};
static_assert(divides_model<pp> && divides_model<towers> && !divides_model<dp> && !divides_model<cp>);

} // namespace

TEST_CASE("a mesh shape has run-time and static extents", "[mesh_shape]") {
  constexpr MeshShape shape{extent<dp>(2), extent<tp, 4>()};
  STATIC_REQUIRE(shape.size() == 8);
  STATIC_REQUIRE(shape.extent_of<dp>() == 2);
  STATIC_REQUIRE(shape.extent_of<tp>() == 4);
  STATIC_REQUIRE(shape.has<tp>);
  STATIC_REQUIRE(!shape.has<cp> && !shape.has<pp>);
  STATIC_REQUIRE(shape.extent_of<cp>() == 1);
  STATIC_REQUIRE(shape.axes[0] == "dp");
  STATIC_REQUIRE(MeshShape<>().size() == 1);
}

TEST_CASE("extents that are not positive or overflow are rejected", "[mesh_shape]") {
  CHECK_THROWS_AS(MeshShape(extent<dp>(0)), InvalidArgument);
  CHECK_THROWS_WITH(MeshShape(extent<dp>(2), extent<tp>(-3)),
                    ContainsSubstring("axis tp must be positive, not -3"));
  CHECK_THROWS_WITH(MeshShape(extent<dp>(1 << 20), extent<tp>(1 << 20)), ContainsSubstring("less than 2^31"));
  CHECK_THROWS_WITH(MeshShape(extent<dp>(std::int64_t{1} << 62), extent<tp>(std::int64_t{1} << 62)),
                    ContainsSubstring("less than 2^31"));
}

TEST_CASE("a mesh that does not fit names the product and the nearest meshes", "[mesh_shape]") {
  const std::array<std::string_view, 2> axes{"dp", "tp"};
  const std::array<std::int64_t, 2> extents{2, 3};
  CHECK_NOTHROW(check_mesh(axes, extents, 6));
  CHECK_THROWS_AS(check_mesh(axes, extents, 8), InvalidArgument);
  CHECK_THROWS_WITH(check_mesh(axes, extents, 8), ContainsSubstring("dp=2,tp=3 is 6"));
  CHECK_THROWS_WITH(check_mesh(axes, extents, 8), ContainsSubstring("the world has 8 ranks"));
  CHECK_THROWS_WITH(check_mesh(axes, extents, 8), ContainsSubstring("dp=2,tp=4"));
  CHECK_THROWS_WITH(check_mesh(axes, extents, 1), ContainsSubstring("the world has 1 rank:"));
  CHECK_THROWS_WITH(check_mesh({}, {}, 4), ContainsSubstring("start 1 rank)"));
}

TEST_CASE("nearest meshes have the right product and the smallest change", "[mesh_shape]") {
  using Meshes = std::vector<std::vector<std::int64_t>>;
  CHECK(nearest_meshes(std::array<std::int64_t, 2>{2, 4}, 8).front() == std::vector<std::int64_t>{2, 4});
  CHECK(nearest_meshes(std::array<std::int64_t, 2>{2, 4}, 16) == Meshes{{4, 4}, {2, 8}, {1, 16}});
  CHECK(nearest_meshes(std::array<std::int64_t, 3>{2, 2, 2}, 7) == Meshes{{7, 1, 1}});
  CHECK(nearest_meshes(std::array<std::int64_t, 1>{2}, 0).empty());
  for (std::int64_t ranks = 1; ranks <= 64; ++ranks)
    for (const auto& extents : {std::vector<std::int64_t>{2, 3}, {4, 1, 2}, {2, 2, 2, 5}}) {
      const auto meshes = nearest_meshes(extents, ranks);
      REQUIRE(!meshes.empty());
      for (const auto& mesh : meshes)
        REQUIRE(std::accumulate(mesh.begin(), mesh.end(), std::int64_t{1}, std::multiplies<>()) == ranks);
    }
}
