// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/propagation.hpp>

#include <type_traits>

using namespace shardwright;
using namespace shardwright::axis;

namespace {

struct heads : axis_tag<heads> {
  static constexpr std::string_view name = "heads";
};
struct not_an_axis {
  static constexpr std::string_view name = "x";
};

struct Holder {
  static constexpr LayoutValue value = [] {
    LayoutValue layout;
    layout.tensor_rank = 2;
    layout.shard(0).push_back(2);
    layout.shard(0).push_back(0);
    layout.set_partial(1, ReduceOp::minimum);
    return layout;
  }();
};
} // namespace

TEST_CASE("axes are tags", "[layout]") {
  STATIC_REQUIRE(Axis<dp>);
  STATIC_REQUIRE(Axis<heads>);
  STATIC_REQUIRE(!Axis<not_an_axis>);
  STATIC_REQUIRE(!Axis<int>);
  STATIC_REQUIRE(std::is_same_v<SortedAxes<tp, axis::edp>, AxisList<axis::edp, tp>>);
  STATIC_REQUIRE(std::is_same_v<SortedAxes<tp, dp, tp, cp>, AxisList<cp, dp, tp>>);
  STATIC_REQUIRE(std::is_same_v<UnionOfAxes<AxisList<cp, tp>, AxisList<dp, tp>>, AxisList<cp, dp, tp>>);
  STATIC_REQUIRE(std::is_same_v<UnionOfAxes<AxisList<>, AxisList<>>, AxisList<>>);
  STATIC_REQUIRE(axis_index(AxisList<cp, tp>::names, "tp") == 1);
  STATIC_REQUIRE(axis_index(AxisList<cp, tp>::names, "dp") == -1);
}

TEST_CASE("the order of placements does not change the type", "[layout]") {
  using First = Layout<3, Shard<0, dp>, Shard<2, tp>, Partial<Sum, cp>>;
  using Second = Layout<3, Partial<Sum, cp>, Shard<2, tp>, Shard<0, dp>>;
  STATIC_REQUIRE(std::is_same_v<First, Second>);
  STATIC_REQUIRE(std::is_same_v<First, TensorLayout<3, Shard<0, dp>, Shard<2, tp>, Partial<Sum, cp>>>);
}

TEST_CASE("axes of one Partial have a fixed order, axes of one Shard the order given", "[layout]") {
  STATIC_REQUIRE(
      std::is_same_v<Layout<1, Partial<Sum, tp, dp>>, Layout<1, Partial<Sum, dp>, Partial<Sum, tp>>>);
  STATIC_REQUIRE(!std::is_same_v<Layout<1, Shard<0, dp, tp>>, Layout<1, Shard<0, tp, dp>>>);
  STATIC_REQUIRE(std::is_same_v<Layout<1, Shard<0, dp, tp>>, Layout<1, Shard<0, dp>, Shard<0, tp>>>);
}

TEST_CASE("unnamed axes are replicated", "[layout]") {
  STATIC_REQUIRE(std::is_same_v<Layout<2, Shard<0, dp>, Replicate<tp, cp>>, Layout<2, Shard<0, dp>>>);
  STATIC_REQUIRE(std::is_same_v<Layout<2, Replicate<dp>>, Layout<2>>);
  STATIC_REQUIRE(Layout<2>::axes.empty());
}

TEST_CASE("a layout type holds its value", "[layout]") {
  using Placed = Layout<2, Shard<1, tp, dp>, Partial<Max, ep>>;
  STATIC_REQUIRE(Placed::tensor_rank == 2);
  STATIC_REQUIRE(std::is_same_v<Placed::axis_list, AxisList<dp, ep, tp>>);
  STATIC_REQUIRE(Placed::value.shard(1) == AxisSequence{{2, 0}, 2});
  STATIC_REQUIRE(Placed::value.is_partial(1));
  STATIC_REQUIRE(Placed::value.op(1) == ReduceOp::maximum);
  STATIC_REQUIRE(Placed::shard_dimension<tp> == 1);
  STATIC_REQUIRE(Placed::shard_dimension<cp> == -1);
  STATIC_REQUIRE(Placed::is_partial<ep>);
  STATIC_REQUIRE(!Placed::is_partial<cp>);
  STATIC_REQUIRE(!Layout<2, Shard<0, tp>>::is_partial<tp>);
  STATIC_REQUIRE(DimensionHalo::of(2, 1, false).width() == 3);
  STATIC_REQUIRE(Placed::value.has_partial());
}

TEST_CASE("a layout value can be turned back into a type", "[layout]") {
  using Table = AxisList<cp, dp, tp>;
  STATIC_REQUIRE(
      std::is_same_v<detail::LayoutOf<Table, Holder>, Layout<2, Shard<0, tp, cp>, Partial<Min, dp>>>);
}

TEST_CASE("equal reductions, and Sum with Avg, may be combined", "[layout]") {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::maximum})
    CHECK(is_linear(op) == (op == ReduceOp::sum || op == ReduceOp::average));
  STATIC_REQUIRE(
      std::is_same_v<Layout<1, Partial<Max, dp>, Partial<Max, tp>>, Layout<1, Partial<Max, tp, dp>>>);
  using Both = Layout<1, Partial<Avg, dp>, Partial<Sum, tp>>;
  STATIC_REQUIRE(std::is_same_v<Both, TensorLayout<1, Partial<Sum, tp>, Partial<Avg, dp>>>);
}

TEST_CASE("products and sums of layout values", "[layout]") {
  const auto sharded = [](int tensor_rank, int dimension, int axis) {
    LayoutValue layout;
    layout.tensor_rank = tensor_rank;
    layout.shard(dimension).push_back(axis);
    return layout;
  };
  // [m, k] x [k, n]: rows over axis 0, the contracted dimension of the right operand over axis 1.
  const DimensionMap left{0, contracted(0)}, right{contracted(0), 1};
  const PropagatedLayout rows = product_layout(sharded(2, 0, 0), left, sharded(2, 1, 1), right, 2, 1);
  CHECK((rows.valid() && rows.layout.shard(0)[0] == 0 && rows.layout.shard(1)[0] == 1));
  const PropagatedLayout inner = product_layout(sharded(2, 1, 1), left, sharded(2, 0, 1), right, 2, 1);
  CHECK((inner.valid() && inner.layout.is_partial(1) && inner.layout.op(1) == ReduceOp::sum));
  CHECK(product_layout(sharded(2, 1, 1), left, sharded(2, 0, 0), right, 2, 1).faults[1] ==
        PropagationFault::contraction_differs);
  const DimensionMap same{0, 1};
  CHECK(sum_layout(inner.layout, same, inner.layout, same, 2).layout.is_partial(1));
  CHECK(sum_layout(inner.layout, same, LayoutValue{.tensor_rank = 2}, same, 2).faults[1] ==
        PropagationFault::partial_and_complete);
}

TEST_CASE("layout values over another table of axes", "[layout]") {
  LayoutValue layout;
  layout.tensor_rank = 1;
  layout.shard(0).push_back(1);
  layout.set_partial(0, ReduceOp::average);
  const LayoutValue moved = remap_axes(layout, std::array{3, 2});
  CHECK(moved.shard(0) == AxisSequence{{2}, 1});
  CHECK(moved.is_partial(3));
  CHECK(moved.op(3) == ReduceOp::average);
  CHECK(!moved.is_partial(0));
  CHECK(remap_axes(layout, std::array{-1, 0}).has_partial() == false);
  CHECK(moved.is_replicated(0));
  CHECK(!moved.is_replicated(2));
}
