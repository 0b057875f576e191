// SPDX-License-Identifier: Apache-2.0

#include "layout/virtual_mesh.hpp"
#include "support/catch.hpp"

#include <shardwright/layout/block.hpp>

#include <algorithm>
#include <vector>

using namespace layout_test;

namespace {

constexpr LayoutValue two_axes_on_dimension_0() {
  LayoutValue layout;
  layout.tensor_rank = 1;
  layout.shard(0).push_back(0);
  layout.shard(0).push_back(1);
  return layout;
}

} // namespace

TEST_CASE("chunks follow the ceil rule", "[block]") {
  for (std::int64_t n = 0; n <= 40; ++n)
    for (std::int64_t parts = 1; parts <= 9; ++parts) {
      const std::int64_t chunk = (n + parts - 1) / parts;
      std::int64_t next = 0;
      for (std::int64_t r = 0; r < parts; ++r) {
        const DimensionBlock block = chunk_of({0, n}, parts, r);
        REQUIRE(block.size == std::max<std::int64_t>(0, std::min(n, (r + 1) * chunk) - r * chunk));
        REQUIRE(block.offset == next);
        next += block.size;
      }
      REQUIRE(next == n);
    }
}

TEST_CASE("13 rows over a 4 x 2 mesh: the last rank has 0 rows at offset 13", "[block]") {
  constexpr std::array<int, 2> extents{4, 2};
  constexpr std::array<int, 2> last{3, 1};
  STATIC_REQUIRE(dimension_block(two_axes_on_dimension_0(), 0, extents, last, 13) == DimensionBlock{13, 0});
}

TEST_CASE("5 rows over 2 x 2 are 2, 1, 1, 1", "[block]") {
  const std::array<int, 2> extents{2, 2};
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      sizes.push_back(dimension_block(two_axes_on_dimension_0(), 0, extents, std::array{i, j}, 5).size);
  CHECK(sizes == std::vector<std::int64_t>{2, 1, 1, 1});
}

TEST_CASE("blocks cover every element once", "[block]") {
  for (const auto& extents : {std::vector<int>{4, 2}, {3, 3}, {1, 5}, {2, 1}}) {
    const VirtualMesh mesh(extents);
    for (const LayoutValue& layout : all_layouts(2, 2, {}))
      for (const std::int64_t rows : {0, 1, 4, 13})
        for (const std::int64_t columns : {1, 6}) {
          const std::vector<std::int64_t> shape{rows, columns};
          VirtualTensor tensor = make_tensor(mesh, layout, shape);
          std::vector<int> copies(static_cast<std::size_t>(rows * columns), 0);
          for (const VirtualBlock& block : tensor.blocks)
            block.for_each([&](const Index& index) {
              ++copies[static_cast<std::size_t>(index[0] * columns + index[1])];
            });
          int replicas = mesh.ranks();
          for (int axis = 0; axis < 2; ++axis)
            if (layout.dimension_of(axis) >= 0)
              replicas /= extents[static_cast<std::size_t>(axis)];
          REQUIRE(std::all_of(copies.begin(), copies.end(), [&](int n) { return n == replicas; }));

          for (int rank = 0; rank < mesh.ranks(); ++rank) {
            const VirtualBlock& block = tensor.blocks[static_cast<std::size_t>(rank)];
            const std::vector<int> coordinates = mesh.coordinates(rank);
            const auto local = local_shape(layout, mesh.extents, coordinates, shape);
            REQUIRE((local[0] == block.ranges[0].size && local[1] == block.ranges[1].size && local[2] == 1));
          }
        }
  }
}
