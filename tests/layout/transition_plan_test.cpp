// SPDX-License-Identifier: Apache-2.0

#include "layout/virtual_mesh.hpp"
#include "support/catch.hpp"

#include <shardwright/layout/transition_plan.hpp>

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

using namespace layout_test;

namespace {

/// The value that a rank must hold at an index after the transition: the parts of the axes that were partial
/// and no longer are, combined; and for replicated-to-partial axes the value on the first rank only.
double expected(const VirtualMesh& mesh, std::uint64_t seed, const LayoutValue& from, const LayoutValue& to,
                const Index& index, const std::vector<int>& coordinates) {
  std::vector<std::vector<int>> parts{std::vector<int>(mesh.extents.size(), 0)};
  ReduceOp op = ReduceOp::sum;
  for (std::size_t axis = 0; axis < mesh.extents.size(); ++axis) {
    const int a = static_cast<int>(axis);
    if (!from.is_partial(a)) {
      if (to.is_partial(a) && coordinates[axis] != 0)
        return 0;
      continue;
    }
    if (to.is_partial(a)) {
      for (auto& part : parts)
        part[axis] = coordinates[axis];
      continue;
    }
    op = from.op(a);
    std::vector<std::vector<int>> next;
    for (const auto& part : parts)
      for (int c = 0; c < mesh.extents[axis]; ++c) {
        next.push_back(part);
        next.back()[axis] = c;
      }
    parts = next;
  }
  double value = static_cast<double>(hashed(seed, index, parts.front(), 40));
  for (std::size_t i = 1; i < parts.size(); ++i)
    value = combine(op, value, static_cast<double>(hashed(seed, index, parts[i], 40)));
  return op == ReduceOp::average ? value / static_cast<double>(parts.size()) : value;
}

/// Runs every legal pair of layouts and compares each rank's block with the definition. Returns the number of
/// pairs.
int check_all_pairs(const VirtualMesh& mesh, const std::vector<std::int64_t>& shape,
                    const std::vector<ReduceOp>& ops, bool internal) {
  const auto layouts =
      all_layouts(static_cast<int>(shape.size()), static_cast<int>(mesh.extents.size()), ops);
  int pairs = 0;
  for (const LayoutValue& from : layouts) {
    VirtualTensor start = make_tensor(mesh, from, shape);
    const std::uint64_t seed = 7;
    fill_parts(mesh, start, [&](const Index& index, const std::vector<int>& coordinates) {
      return static_cast<double>(hashed(seed, index, coordinates, 40));
    });
    for (const LayoutValue& to : layouts) {
      if (!is_legal(from, to, internal))
        continue;
      ++pairs;
      const TransitionPlan plan = plan_transition(from, to);
      const VirtualTensor result = run_plan(mesh, start, plan);
      bool equal = result.layout == to;
      for (const TransitionMove& move : plan) // moves are compared with ==, so what they do not use is -1
        equal = equal && (move.kind == StepKind::all_to_all || move.from_dimension == -1);
      for (int rank = 0; equal && rank < mesh.ranks(); ++rank) {
        const VirtualBlock& block = result.blocks[static_cast<std::size_t>(rank)];
        const std::vector<int> coordinates = mesh.coordinates(rank);
        block.for_each([&](const Index& index) {
          equal = equal && block.at(index) == expected(mesh, seed, from, to, index, coordinates);
        });
      }
      if (!equal) {
        CAPTURE(pairs);
        FAIL("a transition gives a wrong block");
      }
    }
  }
  return pairs;
}

/// Bytes at a nominal extent of 2, and collectives: a plan must minimise these.
struct PlanCost {
  double bytes = 0;
  int collectives = 0;
  friend bool operator<(const PlanCost& left, const PlanCost& right) {
    return std::tie(left.bytes, left.collectives) < std::tie(right.bytes, right.collectives);
  }
  friend bool operator==(const PlanCost&, const PlanCost&) = default;
};

PlanCost cost_of(const TransitionMove& move, const LayoutValue& before) {
  double block = 1;
  for (int d = 0; d < before.tensor_rank; ++d)
    for (int i = 0; i < before.shard(d).count; ++i)
      block /= 2;
  const double group = static_cast<double>(1 << move.axes.count);
  switch (move.kind) {
  case StepKind::all_gather:
    return {block * (group - 1), 1};
  case StepKind::all_to_all:
  case StepKind::reduce_scatter:
    return {block * (group - 1) / group, 1};
  case StepKind::all_reduce:
    return {2 * block * (group - 1) / group, 1};
  default:
    return {};
  }
}

PlanCost cost_of(const TransitionPlan& plan, LayoutValue layout) {
  PlanCost total;
  for (const TransitionMove& move : plan) {
    const PlanCost cost = cost_of(move, layout);
    total = {total.bytes + cost.bytes, total.collectives + cost.collectives};
    layout = apply(move, layout);
  }
  return total;
}

/// All moves of one kind that start at a layout. With `anywhere`, an axis may go to any dimension and any
/// depth, and axes that the transition does not change may move as well.
std::vector<TransitionMove> all_moves(const LayoutValue& at, const LayoutValue& to, int axes, bool anywhere) {
  std::vector<TransitionMove> out;
  const auto allowed = [&](int axis, int dimension) {
    return anywhere || to.dimension_of(axis) == dimension;
  };
  for (int d = 0; d < at.tensor_rank; ++d) {
    for (int n = 1; n <= at.shard(d).count; ++n) {
      TransitionMove gather{StepKind::all_gather, {}, d, -1, ReduceOp::sum};
      for (int i = at.shard(d).count - n; i < at.shard(d).count; ++i)
        gather.axes.push_back(at.shard(d)[i]);
      out.push_back(gather);
    }
    for (int e = 0; e < at.tensor_rank; ++e)
      if (e != d && !at.shard(d).empty() && allowed(at.shard(d).back(), e)) {
        TransitionMove exchange{StepKind::all_to_all, {}, e, d, ReduceOp::sum};
        exchange.axes.push_back(at.shard(d).back());
        out.push_back(exchange);
      }
  }
  // Sequences of one or two axes that are not sharded: slices, reduce_scatters, all_reduces.
  for (int first = 0; first < axes; ++first)
    for (int second = -1; second < axes; ++second) {
      if (first == second || at.dimension_of(first) >= 0 || (second >= 0 && at.dimension_of(second) >= 0))
        continue;
      const bool partial = at.is_partial(first);
      if (second >= 0 && (at.is_partial(second) != partial || at.op(first) != at.op(second)))
        continue;
      TransitionMove move{partial ? StepKind::all_reduce : StepKind::slice, {}, -1, -1, at.op(first)};
      move.axes.push_back(first);
      if (second >= 0)
        move.axes.push_back(second);
      if (partial && first > second)
        out.push_back(move);
      for (int d = 0; d < at.tensor_rank; ++d) {
        if (!allowed(first, d) || (second >= 0 && !allowed(second, d)))
          continue;
        move.kind = partial ? StepKind::reduce_scatter : StepKind::slice;
        move.dimension = d;
        out.push_back(move);
      }
    }
  return out;
}

/// Cheapest cost of every layout from one start, by exhaustive search over layouts.
PlanCost cheapest(const LayoutValue& from, const LayoutValue& to, int axes, bool anywhere) {
  std::vector<std::pair<LayoutValue, PlanCost>> best{{from, {}}};
  for (std::size_t changed = 1; changed != 0;) {
    changed = 0;
    for (std::size_t i = 0; i < best.size(); ++i)
      for (const TransitionMove& move : all_moves(best[i].first, to, axes, anywhere)) {
        const PlanCost step = cost_of(move, best[i].first);
        const PlanCost cost{best[i].second.bytes + step.bytes, best[i].second.collectives + step.collectives};
        const LayoutValue next = apply(move, best[i].first);
        const auto known =
            std::find_if(best.begin(), best.end(), [&](const auto& entry) { return entry.first == next; });
        if (known == best.end()) {
          best.emplace_back(next, cost);
          ++changed;
        } else if (cost < known->second) {
          known->second = cost;
          ++changed;
        }
      }
  }
  for (const auto& [layout, cost] : best)
    if (layout == to)
      return cost;
  throw std::logic_error("the layout cannot be reached");
}

} // namespace

TEST_CASE("every legal transition over one axis gives every rank its block", "[transition]") {
  for (const int extent : {1, 2, 3, 4})
    for (const std::int64_t rows : {0, 1, 5, 8}) {
      CHECK(check_all_pairs(VirtualMesh({extent}), {rows}, {ReduceOp::sum}, true) == 8);
      CHECK(check_all_pairs(VirtualMesh({extent}), {rows, 3}, {ReduceOp::sum, ReduceOp::maximum}, false) ==
            17);
      CHECK(check_all_pairs(VirtualMesh({extent}), {rows, 3, 2}, {ReduceOp::sum}, false) > 0);
    }
  for (const ReduceOp op : {ReduceOp::average, ReduceOp::product, ReduceOp::maximum, ReduceOp::minimum})
    CHECK(check_all_pairs(VirtualMesh({4}), {5, 3}, {op}, false) > 0);
}

TEST_CASE("every legal transition over two axes gives every rank its block", "[transition]") {
  for (const auto& extents : {std::vector<int>{2, 2}, {3, 2}, {4, 3}, {1, 3}})
    for (const auto& shape : {std::vector<std::int64_t>{13}, {3}, {5, 7}, {1, 6}, {2, 3, 4}})
      CHECK(check_all_pairs(VirtualMesh(extents), shape, {ReduceOp::sum}, true) > 0);
  CHECK(check_all_pairs(VirtualMesh({2, 2}), {5, 3}, {ReduceOp::average}, false) > 0);
  CHECK(check_all_pairs(VirtualMesh({3, 2}), {5, 3}, {ReduceOp::minimum}, false) > 0);
}

TEST_CASE("every legal transition over three axes gives every rank its block", "[transition]") {
  CHECK(check_all_pairs(VirtualMesh({2, 2, 2}), {13}, {ReduceOp::sum}, true) > 0);
  CHECK(check_all_pairs(VirtualMesh({2, 3, 2}), {5, 3}, {ReduceOp::sum}, true) > 0);
}

TEST_CASE("the order of the axes in the mesh does not matter", "[transition]") {
  VirtualMesh mesh({3, 2});
  mesh.order = {1, 0};
  CHECK(check_all_pairs(mesh, {13, 3}, {ReduceOp::sum}, true) > 0);
}

TEST_CASE("a plan over two axes is as cheap as the best of all sequences of moves", "[transition]") {
  for (const int tensor_rank : {1, 2, 3}) {
    const auto layouts = all_layouts(tensor_rank, 2, {ReduceOp::sum});
    int pairs = 0;
    int optimal = 0;
    for (const LayoutValue& from : layouts)
      for (const LayoutValue& to : layouts) {
        if (!is_legal(from, to))
          continue;
        ++pairs;
        optimal += cost_of(plan_transition(from, to), from) == cheapest(from, to, 2, false) ? 1 : 0;
      }
    CHECK(pairs > 60);
    CHECK(optimal == pairs);
  }
}

TEST_CASE("only a detour over other dimensions, with more collectives, could move fewer bytes",
          "[transition]") {
  for (const int tensor_rank : {1, 2}) {
    const auto layouts = all_layouts(tensor_rank, 2, {ReduceOp::sum});
    for (const LayoutValue& from : layouts)
      for (const LayoutValue& to : layouts) {
        if (!is_legal(from, to))
          continue;
        const PlanCost planned = cost_of(plan_transition(from, to), from);
        const PlanCost detour = cheapest(from, to, 2, true);
        CHECK((planned == detour || (tensor_rank > 1 && detour.collectives > planned.collectives)));
      }
  }
}

TEST_CASE("the same layouts give the same moves at run time and at compile time", "[transition]") {
  constexpr auto layouts = [] {
    std::array<LayoutValue, 2> both{};
    both[0].tensor_rank = both[1].tensor_rank = 2;
    both[0].shard(0).push_back(1);
    both[0].set_partial(0, ReduceOp::sum);
    both[1].shard(1).push_back(0);
    return both;
  }();
  constexpr TransitionPlan compiled = plan_transition(layouts[0], layouts[1]);
  const TransitionPlan computed = plan_transition(layouts[0], layouts[1]);
  STATIC_REQUIRE(compiled.count == 2);
  REQUIRE(computed.moves == compiled.moves);
}

TEST_CASE("of plans with equal cost the first is taken", "[transition]") {
  LayoutValue from;
  from.tensor_rank = 2;
  LayoutValue to = from;
  from.shard(0).push_back(0);
  from.shard(1).push_back(1);
  const TransitionPlan gathers = plan_transition(from, to);
  REQUIRE(gathers.count == 2);
  CHECK((gathers.moves[0].dimension == 0 && gathers.moves[1].dimension == 1));

  from = to;
  from.shard(0).push_back(0);
  from.set_partial(1, ReduceOp::sum);
  to.shard(0).push_back(1);
  const TransitionPlan plan = plan_transition(from, to);
  REQUIRE(plan.count == 2); // an all_reduce, a gather and a slice move as many bytes
  CHECK(plan.moves[0].kind == StepKind::all_gather);
  CHECK(plan.moves[1].kind == StepKind::reduce_scatter);
}

TEST_CASE("axes that do not change are not moved", "[transition]") {
  LayoutValue from;
  from.tensor_rank = 2;
  from.shard(0).push_back(0);
  from.shard(0).push_back(1);
  from.set_partial(2, ReduceOp::maximum);
  from.set_partial(3, ReduceOp::maximum);
  LayoutValue to = from;
  to.clear_partial(3);
  REQUIRE(changed_axes(from, to) == 1);
  const TransitionPlan plan = plan_transition(from, to);
  REQUIRE(plan.count == 1);
  CHECK(plan.moves[0].kind == StepKind::all_reduce);
  CHECK(plan.moves[0].axes == AxisSequence{{3}, 1});
  CHECK(plan_transition(to, to).count == 0);
}

TEST_CASE("six changed axes are planned, eight axes are described", "[transition]") {
  LayoutValue from;
  LayoutValue to;
  from.tensor_rank = to.tensor_rank = 2;
  for (int axis = 0; axis < max_changed_axes; ++axis) {
    from.shard(axis % 2).push_back(axis);
    to.shard(1 - axis % 2).push_back(axis);
  }
  const VirtualMesh mesh({2, 2, 2, 2, 2, 2});
  VirtualTensor tensor = make_tensor(mesh, from, {9, 10});
  const auto fill = [](const Index& index, const std::vector<int>& c) {
    return static_cast<double>(hashed(3, index, c, 99));
  };
  fill_parts(mesh, tensor, fill);
  const VirtualTensor result = run_plan(mesh, tensor, plan_transition(from, to));
  VirtualTensor wanted = make_tensor(mesh, to, {9, 10});
  fill_parts(mesh, wanted, fill);
  for (std::size_t rank = 0; rank < result.blocks.size(); ++rank)
    CHECK(result.blocks[rank].data == wanted.blocks[rank].data);
}
