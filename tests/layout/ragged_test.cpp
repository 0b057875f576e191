// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/ragged.hpp>
#include <shardwright/layout/transition.hpp>

#include <type_traits>

namespace {

namespace sw = shardwright;
using namespace sw::axis;
template <class A, class B> inline constexpr bool same = std::is_same_v<A, B>;

using Tokens = sw::Layout<2, sw::Shard<0, dp, ep>>;
using Rows = sw::Ragged<Tokens, sw::AxisList<ep>>;
using Up = sw::Layout<3, sw::Shard<0, ep>, sw::Shard<2, tp>>;
using Down = sw::Layout<3, sw::Shard<0, ep>, sw::Shard<1, tp>>;
using Hidden = sw::GroupedLayout<Rows, Up>;
using Unfinished = sw::GroupedLayout<Hidden, Down>;
template <class... Placements> using Columns = Rows::with_columns<sw::Layout<1, Placements...>>;
struct Function {};

} // namespace

TEST_CASE("rows grouped by expert get the columns of products and functions") {
  STATIC_REQUIRE(same<sw::DispatchLayout<Tokens, sw::AxisList<ep>>, Rows>);
  STATIC_REQUIRE(same<Hidden, Columns<sw::Shard<0, tp>>>);
  STATIC_REQUIRE(same<sw::ElementwiseFunctionLayout<Function, Hidden>, Hidden>);
  STATIC_REQUIRE(same<sw::MultiplyLayout<Hidden, Hidden>, Hidden>);
  STATIC_REQUIRE(same<Unfinished, Columns<sw::Partial<sw::Sum, tp>>>);
  STATIC_REQUIRE(same<sw::ElementwiseLinearLayout<Unfinished>, Unfinished>);
  STATIC_REQUIRE(same<sw::CombineLayout<Unfinished, Tokens>,
                      sw::Layout<2, sw::Shard<0, dp, ep>, sw::Partial<sw::Sum, tp>>>);
  STATIC_REQUIRE(
      same<sw::CombineLayout<Hidden, Tokens>, sw::Layout<2, sw::Shard<0, dp, ep>, sw::Shard<1, tp>>>);
}

TEST_CASE("gradients of experts: rows where the rows are, weights Partial where tokens are split") {
  STATIC_REQUIRE(same<sw::Gradient<Unfinished>, Rows>);
  STATIC_REQUIRE(same<sw::GroupedInputGradientLayout<sw::Gradient<Hidden>, Up>, Unfinished>);
  STATIC_REQUIRE(sw::Transition<Unfinished, Rows>::count<sw::AllReduce> == 1);
  STATIC_REQUIRE(sw::Transition<Unfinished, Rows>::collectives == 1);
  using Replicas = sw::Partial<sw::Sum, dp>; // never over ep: each expert's tokens are already on this rank
  STATIC_REQUIRE(same<sw::GroupedWeightGradientLayout<Rows, sw::Gradient<Hidden>>,
                      sw::Layout<3, sw::Shard<0, ep>, sw::Shard<2, tp>, Replicas>>);
  STATIC_REQUIRE(same<sw::GroupedWeightGradientLayout<Hidden, sw::Gradient<Unfinished>>,
                      sw::Layout<3, sw::Shard<0, ep>, sw::Shard<1, tp>, Replicas>>);
  STATIC_REQUIRE(same<sw::GateGradientLayout<Unfinished, Tokens>,
                      sw::Layout<2, sw::Shard<0, dp, ep>, sw::Partial<sw::Sum, tp>>>);
  STATIC_REQUIRE(same<sw::GateGradientLayout<Hidden, Tokens>,
                      sw::Layout<2, sw::Shard<0, dp, ep>, sw::Partial<sw::Sum, tp>>>);
  STATIC_REQUIRE(same<sw::GateGradientLayout<Rows, Tokens>, Tokens>);
}

TEST_CASE("experts may be owned by any axes that split the tokens, in any order, or by none") {
  using Folded = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, cp, tp>>;
  using Owners = sw::AxisList<tp, dp>;
  using Flat = sw::DispatchLayout<Folded, Owners>;
  using Weights = sw::Layout<3, sw::Shard<0, tp, dp>>;
  STATIC_REQUIRE(same<Flat, sw::Ragged<Folded, Owners>>);
  STATIC_REQUIRE(same<sw::GroupedLayout<Flat, Weights>, Flat>);
  STATIC_REQUIRE(same<sw::CombineLayout<Flat, Folded>, Folded>);
  STATIC_REQUIRE(same<sw::GroupedWeightGradientLayout<Flat, Flat>,
                      sw::Layout<3, sw::Shard<0, tp, dp>, sw::Partial<sw::Sum, cp>>>);
  using Everywhere = sw::DispatchLayout<Tokens, sw::AxisList<>>;
  STATIC_REQUIRE(same<sw::GroupedWeightGradientLayout<Everywhere, Everywhere>,
                      sw::Layout<3, sw::Partial<sw::Sum, dp, ep>>>);
}
