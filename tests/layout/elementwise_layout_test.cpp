// SPDX-License-Identifier: Apache-2.0

#include "layout/virtual_values.hpp"
#include "support/catch.hpp"

#include <shardwright/layout/elementwise_layout.hpp>

#include <type_traits>

using namespace layout_test;
using namespace shardwright::axis;

namespace {

using Hidden = Layout<2, Shard<0, dp>, Shard<1, tp>>;
using Unfinished = Layout<2, Shard<0, dp>, Partial<Sum, tp>>;

/// Applies a rule of two operands to every pair of layouts; the right one may lack leading dimensions.
template <class Rule, class Function>
int check_all_pairs(const VirtualMesh& mesh, const std::vector<std::int64_t>& left_shape,
                    const std::vector<std::int64_t>& right_shape, Function f) {
  const auto axes = static_cast<int>(mesh.extents.size());
  const std::vector<ReduceOp> ops{ReduceOp::sum, ReduceOp::average};
  const std::size_t lacking = left_shape.size() - right_shape.size();
  const auto of_right = [&](const Index& index) {
    Index out{};
    for (std::size_t d = 0; d < right_shape.size(); ++d)
      out[d] = index[d + lacking];
    return out;
  };
  int pairs = 0;
  for (const LayoutValue& left : all_layouts(static_cast<int>(left_shape.size()), axes, ops))
    for (const LayoutValue& right : all_layouts(static_cast<int>(right_shape.size()), axes, ops)) {
      const PropagatedLayout result = Rule::apply(left, right);
      if (!result.valid())
        continue;
      ++pairs;
      VirtualTensor a = make_tensor(mesh, left, left_shape);
      VirtualTensor b = make_tensor(mesh, right, right_shape);
      VirtualTensor c = make_tensor(mesh, result.layout, left_shape);
      fill_whole(mesh, a, 1, 9);
      fill_whole(mesh, b, 2, 9);
      bool held = true;
      for (std::size_t rank = 0; rank < c.blocks.size(); ++rank)
        c.blocks[rank].for_each([&](const Index& index) {
          held = held && a.blocks[rank].holds(index) && b.blocks[rank].holds(of_right(index));
          if (held)
            c.blocks[rank].at(index) = f(a.blocks[rank].at(index), b.blocks[rank].at(of_right(index)));
        });
      REQUIRE(held);
      REQUIRE(stands_for(mesh, c, [&](const Index& index) {
        return f(*value_at(mesh, a, index), *value_at(mesh, b, of_right(index)));
      }));
    }
  return pairs;
}

} // namespace

TEST_CASE("linear and nonlinear operations keep the layout", "[elementwise]") {
  STATIC_REQUIRE(std::is_same_v<ElementwiseLinearLayout<Unfinished>, Unfinished>);
  STATIC_REQUIRE(std::is_same_v<ElementwiseNonlinearLayout<operation::swiglu, Hidden>, Hidden>);
  STATIC_REQUIRE(std::is_same_v<RowwiseLayout<operation::rms_norm, Layout<3, Shard<0, dp>, Shard<1, tp>>>,
                                Layout<3, Shard<0, dp>, Shard<1, tp>>>);
  STATIC_REQUIRE(std::is_same_v<ElementwiseNonlinearLayout<operation::swiglu, InvalidLayout>, InvalidLayout>);
  STATIC_REQUIRE(operation::swiglu::name == "swiglu");
}

TEST_CASE("P + P = P, and a bias on the last dimension", "[elementwise]") {
  STATIC_REQUIRE(std::is_same_v<AddLayout<Unfinished, Unfinished>, Unfinished>);
  STATIC_REQUIRE(std::is_same_v<AddLayout<Hidden, Layout<1, Shard<0, tp>>>, Hidden>);
  STATIC_REQUIRE(std::is_same_v<MultiplyLayout<Unfinished, Layout<1>>, Unfinished>);
  STATIC_REQUIRE(std::is_same_v<MultiplyLayout<Hidden, Hidden>, Hidden>);
  STATIC_REQUIRE(std::is_same_v<MultiplyLayout<Hidden, Layout<0>>, Hidden>);
}

TEST_CASE("values: which layouts are rejected", "[elementwise]") {
  const auto value = []<LayoutType Described>() { return detail::value_over<AxisList<dp, tp>, Described>(); };
  const LayoutValue partial = value.operator()<Layout<2, Partial<Sum, tp>>>();
  const LayoutValue largest = value.operator()<Layout<2, Partial<Max, tp>>>();
  const LayoutValue whole = value.operator()<Layout<2>>();
  const LayoutValue rows = value.operator()<Layout<2, Shard<0, tp>>>();
  CHECK(nonlinear_layout(partial).faults[1] == PropagationFault::partial);
  CHECK(nonlinear_layout(partial).faults[0] == PropagationFault::none);
  CHECK(linear_layout(largest).faults[1] == PropagationFault::partial_not_linear);
  CHECK(linear_layout(partial).valid());
  CHECK(rowwise_layout(rows).valid());
  CHECK(rowwise_layout(value.operator()<Hidden>()).faults[1] == PropagationFault::row_sharded);
  CHECK(detail::AddRule::apply(partial, whole).faults[1] == PropagationFault::partial_and_complete);
  CHECK(detail::AddRule::apply(rows, whole).faults[1] == PropagationFault::sharding_differs);
  CHECK(detail::AddRule::apply(largest, largest).faults[1] == PropagationFault::partial_not_linear);
  CHECK(detail::MultiplyRule::apply(partial, partial).faults[1] == PropagationFault::partial_times_partial);
  CHECK(detail::MultiplyRule::apply(partial, rows).faults[1] == PropagationFault::sharding_differs);
}

TEST_CASE("local results represent the whole result wherever the rules accept the layouts", "[elementwise]") {
  const auto add = [](double left, double right) { return left + right; };
  const auto multiply = [](double left, double right) { return left * right; };
  for (const auto& extents : {std::vector<int>{2, 2}, {2, 3}}) {
    const VirtualMesh mesh(extents);
    CHECK(check_all_pairs<detail::AddRule>(mesh, {5, 3}, {5, 3}, add) > 20);
    CHECK(check_all_pairs<detail::AddRule>(mesh, {5, 3}, {3}, add) > 10);
    CHECK(check_all_pairs<detail::MultiplyRule>(mesh, {5, 3}, {5, 3}, multiply) > 20);
    CHECK(check_all_pairs<detail::MultiplyRule>(mesh, {5, 3}, {3}, multiply) > 20);
    CHECK(check_all_pairs<detail::MultiplyRule>(mesh, {2, 3, 2}, {3, 2}, multiply) > 20);
  }
}
