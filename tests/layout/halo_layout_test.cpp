// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/layout/block.hpp>
#include <shardwright/layout/describe.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/layout/transition.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

using namespace shardwright;
using namespace shardwright::axis;

namespace {

struct Function {};
using Plain = Layout<2, Shard<0, dp>, Shard<1, tp>>;
using Haloed = Layout<2, Shard<0, dp, Halo<1, 2>>, Shard<1, tp, PeriodicHalo<3>>>;

TEST_CASE("a layout with halos has one canonical spelling") {
  STATIC_REQUIRE(
      std::is_same_v<Layout<2, Shard<1, tp, PeriodicHalo<3, 3>>, Shard<0, dp, Halo<1, 2>>>, Haloed>);
  STATIC_REQUIRE(!std::is_same_v<Haloed, Plain>);
  STATIC_REQUIRE(std::is_same_v<WithoutHalos<Haloed>, Plain>);
  STATIC_REQUIRE(std::is_same_v<WithoutHalos<Plain>, Plain>);
  STATIC_REQUIRE(
      std::is_same_v<Layout<1, Shard<0, dp>, Shard<0, tp, Halo<1>>>, Layout<1, Shard<0, dp, tp, Halo<1>>>>);
  STATIC_REQUIRE(Haloed::value.halo(0).before() == 1);
  STATIC_REQUIRE(Haloed::value.halo(0).after() == 2);
  STATIC_REQUIRE(!Haloed::value.halo(0).periodic());
  STATIC_REQUIRE(Haloed::value.halo(1) == DimensionHalo::of(3, 3, true));
  REQUIRE(describe<Haloed>() == "Layout<2, Shard<0, dp, Halo<1, 2>>, Shard<1, tp, PeriodicHalo<3, 3>>>");
}

TEST_CASE("halos are exchanged last and dropped first") {
  using Fill = Transition<Plain, Haloed>;
  STATIC_REQUIRE(Fill::steps.size() == 1);
  STATIC_REQUIRE(Fill::count<ExchangeHalos> == 1);
  STATIC_REQUIRE(Fill::collectives == 1);
  STATIC_REQUIRE(Fill::steps[0].after == Haloed::value);
  using Drop = Transition<Haloed, Plain>;
  STATIC_REQUIRE(Drop::steps.size() == 1);
  STATIC_REQUIRE(Drop::count<DropHalos> == 1);
  STATIC_REQUIRE(Drop::collectives == 0);
  STATIC_REQUIRE(Drop::steps[0].after == Plain::value);
  STATIC_REQUIRE(Transition<Haloed, Haloed>::is_identity);
  using Wider = Transition<Layout<1, Shard<0, dp, Halo<1>>>, Layout<1, Shard<0, dp, Halo<2>>>>;
  STATIC_REQUIRE(Wider::count<DropHalos> == 1);
  STATIC_REQUIRE(Wider::count<ExchangeHalos> == 1);
  STATIC_REQUIRE(Wider::collectives == 1);
  REQUIRE(
      describe<Transition<Layout<2>, Haloed>>() ==
      "Layout<2> -> Layout<2, Shard<0, dp, Halo<1, 2>>, Shard<1, tp, PeriodicHalo<3, 3>>>: slice of dimension 0 over "
      "dp; then slice of dimension 1 over tp; then exchange of halos over dp, tp");
}

TEST_CASE("elementwise functions keep halos, reductions ignore them") {
  STATIC_REQUIRE(std::is_same_v<ElementwiseLinearLayout<Haloed>, Haloed>);
  STATIC_REQUIRE(std::is_same_v<ElementwiseFunctionLayout<Function, Haloed>, Haloed>);
  STATIC_REQUIRE(std::is_same_v<AddLayout<Haloed, Haloed>, Haloed>);
  STATIC_REQUIRE(std::is_same_v<MultiplyLayout<Haloed, Haloed>, Haloed>);
  STATIC_REQUIRE(std::is_same_v<DivideLayout<Haloed, Haloed>, Haloed>);
  // A vector along the last dimension, repeated over the rows of the halo as well.
  using Column = Layout<1, Shard<0, tp, PeriodicHalo<3>>>;
  STATIC_REQUIRE(std::is_same_v<AddLayout<Haloed, Column>, Haloed>);
  STATIC_REQUIRE(std::is_same_v<ReduceAllLayout<Sum, Haloed>, ReduceAllLayout<Sum, Plain>>);
  STATIC_REQUIRE(std::is_same_v<ReductionLayout<Max, 0, Haloed>, ReductionLayout<Max, 0, Plain>>);
}

TEST_CASE("a block is longer by its halos, and the bytes of an exchange are those that halos hold") {
  STATIC_REQUIRE(Plain::axes == std::array<std::string_view, 2>{"dp", "tp"} && Haloed::axes == Plain::axes);
  const std::array<int, 2> extents{2, 3};
  const std::array<int, 2> last{1, 2};
  const std::array<std::int64_t, 2> shape{7, 10};
  const auto plain = local_shape(Plain::value, extents, last, shape);
  const auto haloed = local_shape(Haloed::value, extents, last, shape);
  REQUIRE((plain[0] == 3 && plain[1] == 2));
  REQUIRE((haloed[0] == 6 && haloed[1] == 8));

  // Halo<1> over 4 ranks of 8 elements, in the middle: one element from either side.
  using Line = Transition<Layout<1, Shard<0, dp>>, Layout<1, Shard<0, dp, Halo<1>>>>;
  const std::array<int, 1> four{4};
  const std::array<std::int64_t, 1> length{32};
  REQUIRE(Line::bytes(four, length, 8) == 16);
  const std::array<int, 1> one{1};
  REQUIRE(Line::bytes(one, length, 8) == 0);
  // 3 x 3 blocks of 4 x 5 with a ring of cells around each: 2 (4 + 5) + 4.
  using Grid = Transition<Layout<2, Shard<0, dp>, Shard<1, tp>>,
                          Layout<2, Shard<0, dp, Halo<1>>, Shard<1, tp, Halo<1>>>>;
  const std::array<int, 2> nine{3, 3};
  const std::array<std::int64_t, 2> grid{12, 15};
  REQUIRE(Grid::bytes(nine, grid, 4) == 4 * 22);
  REQUIRE(Transition<Haloed, Plain>::bytes(nine, grid, 4) == 0);
  // A ring of one block is its own neighbour.
  using Ring = Transition<Layout<1, Shard<0, dp>>, Layout<1, Shard<0, dp, PeriodicHalo<2>>>>;
  REQUIRE(Ring::bytes(one, length, 8) == 0);
  REQUIRE(Ring::bytes(four, length, 8) == 32);
}

} // namespace
