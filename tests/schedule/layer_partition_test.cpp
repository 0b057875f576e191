// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/schedule/layer_partition.hpp>

#include <string>
#include <vector>

using namespace shardwright;
using shardwright_test::ContainsSubstring;

TEST_CASE("layers are spread evenly, with the remainder on the earlier stages", "[partition]") {
  for (int layers = 0; layers <= 40; ++layers)
    for (int stages = 1; stages <= 12; ++stages) {
      const LayerPartition partition(layers, stages);
      REQUIRE(partition.stages() == stages);
      REQUIRE(partition.layers() == layers);
      int next = 0;
      for (int stage = 0; stage < stages; ++stage) {
        const LayerRange range = partition[stage];
        REQUIRE(range == even_layers(layers, stages, stage));
        REQUIRE(range.begin == next);
        REQUIRE(range.size() == layers / stages + (stage < layers % stages ? 1 : 0));
        next = range.end;
      }
      REQUIRE(next == layers);
    }
}

TEST_CASE("given layers must sum to those of the model", "[partition]") {
  const LayerPartition partition(7, {1, 0, 4, 2});
  CHECK(partition[1] == LayerRange{1, 1});
  CHECK(partition[3] == LayerRange{5, 7});
  CHECK_THROWS_AS(LayerPartition(8, {1, 0, 4, 2}), InvalidArgument);
  CHECK_THROWS_WITH(LayerPartition(8, {1, 0, 4, 2}),
                    ContainsSubstring("the 4 stages have 7 layers together, but the model has 8"));
  CHECK_THROWS_WITH(LayerPartition(2, {3, -1}), ContainsSubstring("stage 1 has -1 layers"));
  CHECK_THROWS_AS(LayerPartition(2, 0), InvalidArgument);
  CHECK_THROWS_AS(LayerPartition(-1, 2), InvalidArgument);
  CHECK_THROWS_AS(LayerPartition(0, std::vector<int>{}), InvalidArgument);
}

TEST_CASE("a partition may be a type", "[partition]") {
  using Uneven = StaticLayerPartition<7, 1, 4, 2>;
  STATIC_REQUIRE(Uneven::stages == 3);
  STATIC_REQUIRE(Uneven::value()[2] == LayerRange{5, 7});
}
