// SPDX-License-Identifier: Apache-2.0

#include "layout/virtual_mesh.hpp"
#include "support/catch.hpp"

#include <shardwright/layout/transition_runtime.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace layout_test;

namespace {

AxisSequence sequence(std::initializer_list<int> axes) {
  AxisSequence out;
  for (const int axis : axes)
    out.push_back(axis);
  return out;
}

/// The single moves that a merged one stands for: shard left to right, unshard right to left.
std::vector<TransitionMove> unmerged(const TransitionMove& move) {
  std::vector<TransitionMove> out;
  const bool left_to_right = move.kind == StepKind::slice || move.kind == StepKind::reduce_scatter;
  for (int i = 0; i < move.axes.count; ++i) {
    out.push_back(move);
    out.back().axes = sequence({move.axes[left_to_right ? i : move.axes.count - 1 - i]});
  }
  return out;
}

double real(const Index& index, const std::vector<int>& coordinates) {
  return static_cast<double>(hashed(11, index, coordinates, 1 << 30)) / 3.0 *
         static_cast<double>(1 + (index[0] + coordinates.back()) % 5);
}

} // namespace

TEST_CASE("merging collectives changes no bit of the result", "[transition]") {
  const std::vector<std::vector<int>> orders{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
  int merged = 0;
  int reducing = 0;
  for (const auto& order : orders) {
    VirtualMesh mesh({3, 2, 4});
    mesh.order = order;
    const auto layouts = all_layouts(1, 3, {ReduceOp::sum});
    for (const LayoutValue& from : layouts)
      for (const LayoutValue& to : layouts) {
        if (!is_legal(from, to))
          continue;
        VirtualTensor tensor = make_tensor(mesh, from, {19});
        fill_parts(mesh, tensor, real);
        for (const TransitionMove& move : plan_transition(from, to)) {
          const VirtualTensor next = run_step(mesh, tensor, move);
          if (move.axes.count > 1) {
            ++merged;
            if (move.kind == StepKind::all_reduce || move.kind == StepKind::reduce_scatter)
              ++reducing;
            VirtualTensor singly = tensor;
            for (const TransitionMove& single : unmerged(move))
              singly = run_step(mesh, singly, single);
            bool equal = singly.layout == next.layout;
            for (std::size_t rank = 0; rank < next.blocks.size(); ++rank)
              equal = equal && singly.blocks[rank].data == next.blocks[rank].data;
            REQUIRE(equal);
          }
          tensor = next;
        }
      }
  }
  CHECK(merged > 100);
  CHECK(reducing > 30);
}

TEST_CASE("a flat reduction order would change bits", "[transition]") {
  VirtualMesh mesh({3, 4});
  LayoutValue partial;
  partial.tensor_rank = 1;
  partial.set_partial(0, ReduceOp::sum);
  partial.set_partial(1, ReduceOp::sum);
  VirtualTensor tensor = make_tensor(mesh, partial, {50});
  fill_parts(mesh, tensor, real);
  const TransitionMove move{StepKind::all_reduce, sequence({0, 1}), -1, -1, ReduceOp::sum};
  const VirtualTensor nested = run_step(mesh, tensor, move);
  int differing = 0;
  for (std::size_t i = 0; i < 50; ++i) {
    std::vector<double> values;
    for (const VirtualBlock& block : tensor.blocks)
      values.push_back(block.data[i]);
    differing += reduce(ReduceOp::sum, values, {}) != nested.blocks[0].data[i] ? 1 : 0;
  }
  CHECK(differing > 0);
}

TEST_CASE("levels of a reduction order", "[transition]") {
  const std::array<int, 3> extents{2, 3, 5};
  const std::array<int, 3> mesh_order{0, 1, 2};
  const TransitionMove scatter{StepKind::reduce_scatter, sequence({0, 1}), 0, -1, ReduceOp::sum};
  const ReductionOrder left_to_right = reduction_order(scatter, extents, mesh_order);
  REQUIRE(left_to_right.count == 2);
  CHECK(left_to_right.levels[0] == ReductionOrder::Level{2, 3});
  CHECK(left_to_right.levels[1] == ReductionOrder::Level{3, 1});
  const TransitionMove reduce_all{StepKind::all_reduce, sequence({0, 1}), -1, -1, ReduceOp::sum};
  const ReductionOrder right_to_left = reduction_order(reduce_all, extents, mesh_order);
  CHECK(right_to_left.levels[0] == ReductionOrder::Level{3, 1});
  CHECK(right_to_left.levels[1] == ReductionOrder::Level{2, 3});
  // The mesh has b before a: the group's ranks are numbered b * 2 + a.
  const std::array<int, 3> swapped{1, 0, 2};
  CHECK(reduction_order(reduce_all, extents, swapped).levels[0] == ReductionOrder::Level{3, 2});
  // A single axis, or a single nontrivial one, needs no levels.
  const TransitionMove one{StepKind::all_reduce, sequence({2}), -1, -1, ReduceOp::sum};
  CHECK(reduction_order(one, extents, mesh_order).count == 0);
  const std::array<int, 3> trivial{1, 3, 5};
  CHECK(reduction_order(reduce_all, trivial, mesh_order).count == 0);
}

TEST_CASE("axes of extent 1 are ignored", "[transition]") {
  LayoutValue from;
  from.tensor_rank = 1;
  from.shard(0) = sequence({0, 1});
  LayoutValue to = from;
  to.shard(0) = sequence({1, 0});
  const std::array<int, 2> both{2, 2};
  const std::array<int, 2> one{1, 2};
  CHECK(without_trivial_axes(from, both) != without_trivial_axes(to, both));
  CHECK(without_trivial_axes(from, one) == without_trivial_axes(to, one));
  CHECK(plan_transition(from, to, both).count == 2);
  CHECK(plan_transition(from, to, one).count == 0);

  TransitionStep step;
  step.kind = StepKind::all_gather;
  step.axes = sequence({0, 1});
  step.dimension = 0;
  step.before = from;
  step.after.tensor_rank = 1;
  CHECK(without_trivial_axes(step, one).axes == sequence({1}));
  CHECK(without_trivial_axes(step, one).before.shard(0) == sequence({1}));
  CHECK(group_size(step, both) == 4);
}

TEST_CASE("a plan at run-time extents gives the same blocks, whichever axes are trivial", "[transition]") {
  for (const auto& extents : {std::vector<int>{1, 2, 3}, {2, 1, 1}, {3, 1, 2}}) {
    const VirtualMesh mesh(extents);
    const auto layouts = all_layouts(2, 3, {ReduceOp::sum});
    int shorter = 0;
    for (std::size_t i = 0; i < layouts.size(); i += 3)
      for (std::size_t j = i % 2; j < layouts.size(); j += 2) {
        const LayoutValue& from = layouts[i];
        const LayoutValue& to = layouts[j];
        if (!is_legal(from, to))
          continue;
        const TransitionPlan plan = plan_transition(from, to, extents);
        shorter += plan.count < plan_transition(from, to).count ? 1 : 0;
        VirtualTensor tensor = make_tensor(mesh, from, {5, 4});
        fill_parts(mesh, tensor, real);
        VirtualTensor reduced = tensor;
        reduced.layout = without_trivial_axes(from, extents);
        const VirtualTensor left = run_plan(mesh, tensor, plan_transition(from, to));
        const VirtualTensor right = run_plan(mesh, reduced, plan);
        double largest = 0;
        for (std::size_t rank = 0; rank < left.blocks.size(); ++rank) {
          REQUIRE(left.blocks[rank].data.size() == right.blocks[rank].data.size());
          for (std::size_t k = 0; k < left.blocks[rank].data.size(); ++k)
            largest = std::max(largest, std::abs(left.blocks[rank].data[k] - right.blocks[rank].data[k]) /
                                            (1 + std::abs(left.blocks[rank].data[k])));
        }
        REQUIRE(largest < 1e-12);
      }
    CHECK(shorter > 0);
  }
}

TEST_CASE("moved elements are those that a rank does not hold yet", "[transition]") {
  for (const auto& extents : {std::vector<int>{2, 2}, {3, 2}, {4, 3}}) {
    const VirtualMesh mesh(extents);
    const std::vector<std::int64_t> shape{7, 10};
    const auto layouts = all_layouts(2, 2, {ReduceOp::sum});
    for (const LayoutValue& from : layouts)
      for (const LayoutValue& to : layouts) {
        if (!is_legal(from, to))
          continue;
        LayoutValue before = from;
        for (const TransitionMove& move : plan_transition(from, to)) {
          TransitionStep step;
          static_cast<TransitionMove&>(step) = move;
          step.before = before;
          step.after = before = apply(move, before);
          const VirtualTensor old_blocks = make_tensor(mesh, step.before, shape);
          const VirtualTensor new_blocks = make_tensor(mesh, step.after, shape);
          for (int rank = 0; rank < mesh.ranks(); ++rank) {
            const auto r = static_cast<std::size_t>(rank);
            std::int64_t received = 0;
            std::int64_t sent = 0;
            new_blocks.blocks[r].for_each(
                [&](const Index& index) { received += old_blocks.blocks[r].holds(index) ? 0 : 1; });
            old_blocks.blocks[r].for_each(
                [&](const Index& index) { sent += new_blocks.blocks[r].holds(index) ? 0 : 1; });
            const std::int64_t moved = moved_elements(step, mesh.extents, mesh.coordinates(rank), shape);
            const auto count = static_cast<std::int64_t>(old_blocks.blocks[r].data.size());
            const std::int64_t ranks = group_size(step, mesh.extents);
            std::int64_t wanted = 0;
            if (step.kind == StepKind::all_gather)
              wanted = received;
            if (step.kind == StepKind::reduce_scatter)
              wanted = sent;
            if (step.kind == StepKind::all_to_all)
              wanted = std::max(sent, received);
            if (step.kind == StepKind::all_reduce)
              wanted = (2 * count * (ranks - 1) + ranks - 1) / ranks;
            REQUIRE(moved == wanted);
          }
        }
      }
  }
}
