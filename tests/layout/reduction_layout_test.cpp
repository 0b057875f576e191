// SPDX-License-Identifier: Apache-2.0

#include "layout/virtual_values.hpp"
#include "support/catch.hpp"

#include <shardwright/layout/reduction_layout.hpp>

#include <limits>
#include <type_traits>

using namespace layout_test;
using namespace shardwright::axis;

namespace {

double start_of(ReduceOp op) {
  return op == ReduceOp::maximum ? -std::numeric_limits<double>::infinity() : op == ReduceOp::product ? 1 : 0;
}

int check_all_layouts(const VirtualMesh& mesh, const std::vector<std::int64_t>& shape, int first, int last,
                      ReduceOp op) {
  const auto dropped = static_cast<std::size_t>(last - first);
  const auto inside = [&](std::size_t d) {
    return d >= static_cast<std::size_t>(first) && d < static_cast<std::size_t>(last);
  };
  const auto reduced = [&](const Index& index) {
    Index out{};
    std::size_t to = 0;
    for (std::size_t d = 0; d < index.size() - dropped; ++d) {
      while (inside(to))
        ++to;
      out[d] = index[to++];
    }
    return out;
  };
  std::vector<std::int64_t> out_shape;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (!inside(d))
      out_shape.push_back(shape[d]);

  int valid = 0;
  for (const LayoutValue& layout :
       all_layouts(static_cast<int>(shape.size()), static_cast<int>(mesh.extents.size()), {op})) {
    const PropagatedLayout result = reduction_layout(layout, first, last, op);
    if (!result.valid())
      continue;
    ++valid;
    VirtualTensor in = make_tensor(mesh, layout, shape);
    VirtualTensor out = make_tensor(mesh, result.layout, out_shape);
    fill_whole(mesh, in, 5, 30);
    for (std::size_t rank = 0; rank < out.blocks.size(); ++rank) {
      VirtualBlock& block = out.blocks[rank];
      block.for_each([&](const Index& index) { block.at(index) = start_of(op); });
      in.blocks[rank].for_each([&](const Index& index) {
        double& total = block.at(reduced(index));
        total = combine(op, total, in.blocks[rank].at(index));
      });
    }
    REQUIRE(stands_for(mesh, out, [&](const Index& at) {
      double total = start_of(op);
      VirtualBlock whole;
      for (std::size_t d = 0; d < whole.ranges.size(); ++d)
        whole.ranges[d] = {0, d < shape.size() ? shape[d] : 1};
      whole.for_each([&](const Index& index) {
        if (reduced(index) == at)
          total = combine(op, total, *value_at(mesh, in, index));
      });
      return total;
    }));
  }
  return valid;
}

} // namespace

TEST_CASE("a reduced dimension leaves its axes Partial", "[reduction]") {
  using Hidden = Layout<2, Shard<0, dp>, Shard<1, tp>>;
  STATIC_REQUIRE(std::is_same_v<ReductionLayout<Sum, 1, Hidden>, Layout<1, Shard<0, dp>, Partial<Sum, tp>>>);
  STATIC_REQUIRE(std::is_same_v<ReductionLayout<Max, 0, Hidden>, Layout<1, Shard<0, tp>, Partial<Max, dp>>>);
  STATIC_REQUIRE(std::is_same_v<ReduceAllLayout<Sum, Hidden>, Layout<0, Partial<Sum, dp, tp>>>);
  STATIC_REQUIRE(
      std::is_same_v<ReductionLayout<Sum, 1, Layout<2, Partial<Avg, dp>>>, Layout<1, Partial<Avg, dp>>>);
  STATIC_REQUIRE(
      std::is_same_v<ReductionLayout<Max, 1, Layout<2, Partial<Max, dp>>>, Layout<1, Partial<Max, dp>>>);
  STATIC_REQUIRE(std::is_same_v<ReductionLayout<Sum, 1, InvalidLayout>, InvalidLayout>);
}

TEST_CASE("which partial inputs are rejected", "[reduction]") {
  LayoutValue partial;
  partial.tensor_rank = 1;
  partial.set_partial(0, ReduceOp::sum);
  CHECK(reduction_layout(partial, 0, 1, ReduceOp::maximum).faults[0] == PropagationFault::partial);
  partial.set_partial(0, ReduceOp::maximum);
  CHECK(reduction_layout(partial, 0, 1, ReduceOp::sum).faults[0] == PropagationFault::partial_not_linear);
}

TEST_CASE("local reductions represent the whole reduction", "[reduction]") {
  for (const auto& extents : {std::vector<int>{2, 2}, {4, 3}}) {
    const VirtualMesh mesh(extents);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::maximum}) {
      CHECK(check_all_layouts(mesh, {5, 3}, 0, 1, op) > 10);
      CHECK(check_all_layouts(mesh, {5, 3}, 1, 2, op) > 10);
      CHECK(check_all_layouts(mesh, {2, 3, 2}, 1, 2, op) > 10);
      CHECK(check_all_layouts(mesh, {5, 3}, 0, 2, op) > 10);
    }
  }
}
