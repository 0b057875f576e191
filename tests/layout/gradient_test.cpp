// SPDX-License-Identifier: Apache-2.0

#include "layout/virtual_values.hpp"
#include "support/catch.hpp"

#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/transition.hpp>

#include <type_traits>

using namespace layout_test;
using namespace shardwright::axis;

namespace {

/// The layout of a value's gradient, as Gradient<L> defines it: Partial becomes replicated.
LayoutValue gradient_of(LayoutValue layout) {
  for (int axis = 0; axis < max_axes; ++axis)
    layout.clear_partial(axis);
  return layout;
}

/// <x, g> over the whole tensor: copies of a value count once; every part of a Partial value pairs with the
/// gradient.
double paired(const VirtualMesh& mesh, const VirtualTensor& value, const VirtualTensor& gradient) {
  double total = 0;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<int> coordinates = mesh.coordinates(rank);
    bool counts = true;
    for (std::size_t axis = 0; axis < coordinates.size(); ++axis)
      counts = counts && (coordinates[axis] == 0 || !value.layout.is_replicated(static_cast<int>(axis)));
    if (!counts)
      continue;
    const VirtualBlock& block = value.blocks[static_cast<std::size_t>(rank)];
    const VirtualBlock& other = gradient.blocks[static_cast<std::size_t>(rank)];
    REQUIRE(block.ranges == other.ranges);
    for (std::size_t i = 0; i < block.data.size(); ++i)
      total += block.data[i] * other.data[i];
  }
  return total;
}

} // namespace

TEST_CASE("a gradient is complete if the value is replicated or partial", "[gradient]") {
  using Value = Layout<2, Shard<0, dp>, Partial<Sum, tp>>;
  STATIC_REQUIRE(std::is_same_v<Gradient<Value>, Layout<2, Shard<0, dp>>>);
  STATIC_REQUIRE(std::is_same_v<Gradient<Layout<2, Shard<1, tp, dp>>>, Layout<2, Shard<1, tp, dp>>>);
  STATIC_REQUIRE(std::is_same_v<Gradient<InvalidLayout>, InvalidLayout>);
}

TEST_CASE("forward and backward pairs", "[gradient]") {
  using V = Layout<2, Shard<0, tp>>;
  using P = Layout<2, Partial<Sum, tp>>;
  using I = Layout<2>;
  // V to I: all_gather / local slice. P to I: all_reduce / nothing. P to V: reduce_scatter / all_gather.
  STATIC_REQUIRE(Transition<Gradient<I>, Gradient<V>>::count<Slice> == 1);
  STATIC_REQUIRE(Transition<Gradient<I>, Gradient<P>>::is_identity);
  STATIC_REQUIRE(Transition<Gradient<V>, Gradient<P>>::count<AllGather> == 1);
  // Slicing a replicated value: its gradient is gathered.
  STATIC_REQUIRE(Transition<Gradient<V>, Gradient<I>>::count<AllGather> == 1);
  // A gradient that arrives Partial: V to R is all_gather / reduce_scatter, P to R and I to R end in an
  // all_reduce.
  STATIC_REQUIRE(Transition<P, Gradient<V>>::count<ReduceScatter> == 1);
  STATIC_REQUIRE(Transition<P, Gradient<I>>::count<AllReduce> == 1);
  STATIC_REQUIRE(Transition<P, Gradient<P>>::count<AllReduce> == 1);
}

TEST_CASE("<T x, y> = <x, T* y> for every transition", "[gradient]") {
  for (const auto& extents : {std::vector<int>{2, 2}, {3, 2}, {2, 1, 3}}) {
    const VirtualMesh mesh(extents);
    const std::vector<std::int64_t> shape{5, 4};
    const auto layouts = all_layouts(2, static_cast<int>(extents.size()), {ReduceOp::sum});
    int pairs = 0;
    for (const LayoutValue& from : layouts)
      for (const LayoutValue& to : layouts) {
        if (!is_legal(from, to))
          continue;
        ++pairs;
        VirtualTensor x = make_tensor(mesh, from, shape);
        VirtualTensor y = make_tensor(mesh, gradient_of(to), shape);
        fill_whole(mesh, x, 1, 20);
        fill_whole(mesh, y, 2, 20);
        const VirtualTensor forward = run_plan(mesh, x, plan_transition(from, to));
        const VirtualTensor backward = run_plan(mesh, y, plan_transition(gradient_of(to), gradient_of(from)));
        REQUIRE(paired(mesh, forward, y) == paired(mesh, x, backward));
      }
    CHECK(pairs > 200);
  }
}

TEST_CASE("tied layouts and layouts on a mesh", "[gradient]") {
  using Table = Layout<2, Shard<0, tp>>;
  STATIC_REQUIRE(std::is_same_v<TiedLayouts<Table, Layout<2, Shard<0, tp>, Replicate<dp>>>, Table>);
  STATIC_REQUIRE(fits_mesh<Table, AxisList<tp, dp>>);
  STATIC_REQUIRE(fits_mesh<Layout<1>, AxisList<>>);
}
