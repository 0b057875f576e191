// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/layout/transition.hpp>

#include <type_traits>

using namespace shardwright;
using namespace shardwright::axis;

namespace {

struct a : axis_tag<a> {
  static constexpr std::string_view name = "a";
};
struct b : axis_tag<b> {
  static constexpr std::string_view name = "b";
};
struct c : axis_tag<c> {
  static constexpr std::string_view name = "c";
};

using S0S1 = Layout<2, Shard<0, a>, Shard<1, b>>;
using S1S0 = Layout<2, Shard<1, a>, Shard<0, b>>;
using S0S0 = Layout<2, Shard<0, a, b>>;
using S1S1 = Layout<2, Shard<1, a, b>>;
using PP = Layout<2, Partial<Sum, a, b>>;
using R2 = Layout<2>;

template <class From, class To> constexpr int collectives = Transition<From, To>::collectives;

constexpr AxisSequence sequence(std::initializer_list<int> axes) {
  AxisSequence out;
  for (const int axis : axes)
    out.push_back(axis);
  return out;
}

} // namespace

TEST_CASE("one axis: every row of the table", "[transition]") {
  using S0 = Layout<2, Shard<0, tp>>;
  using S1 = Layout<2, Shard<1, tp>>;
  using P = Layout<2, Partial<Sum, tp>>;
  STATIC_REQUIRE((Transition<S0, R2>::count<AllGather> == 1 && collectives<S0, R2> == 1));
  STATIC_REQUIRE((Transition<S0, S1>::count<AllToAll> == 1 && collectives<S0, S1> == 1));
  STATIC_REQUIRE((Transition<R2, S0>::count<Slice> == 1 && collectives<R2, S0> == 0));
  STATIC_REQUIRE((Transition<P, R2>::count<AllReduce> == 1 && collectives<P, R2> == 1));
  STATIC_REQUIRE((Transition<P, S1>::count<ReduceScatter> == 1 && collectives<P, S1> == 1));
  STATIC_REQUIRE(Transition<S0, S0>::is_identity);
  STATIC_REQUIRE(Transition<P, P>::is_identity);
  STATIC_REQUIRE(!Transition<P, S1>::is_identity);
  STATIC_REQUIRE(Transition<Layout<2, Partial<Max, tp>>, R2>::steps[0].op == ReduceOp::maximum);
}

TEST_CASE("one axis: the faults", "[transition]") {
  const auto fault = []<class From, class To>(From, To, bool internal) {
    return transition_fault(From::value, To::value, 0, internal);
  };
  using P = Layout<2, Partial<Sum, tp>>;
  using M = Layout<2, Partial<Max, tp>>;
  for (const bool internal : {false, true}) {
    CHECK(fault(Layout<2, Shard<0, tp>>{}, P{}, internal) == TransitionFault::shard_to_partial);
    CHECK(fault(Layout<2, Shard<1, tp>>{}, P{}, internal) == TransitionFault::shard_to_partial);
    CHECK(fault(M{}, P{}, internal) == TransitionFault::partial_to_other_partial);
    CHECK(fault(P{}, P{}, internal) == TransitionFault::none);
  }
}

TEST_CASE("counts on a 2 x 2 mesh", "[transition]") {
  STATIC_REQUIRE(collectives<S0S1, S0S0> == 1);
  STATIC_REQUIRE(collectives<S0S1, S1S0> == 2);
  STATIC_REQUIRE(collectives<S0S0, S1S1> == 2);
}

TEST_CASE("neighbouring steps of one kind merge", "[transition]") {
  STATIC_REQUIRE((Transition<PP, S0S0>::count<ReduceScatter> == 1 && collectives<PP, S0S0> == 1));
  STATIC_REQUIRE(Transition<PP, S0S0>::steps[0].axes == sequence({0, 1}));
  STATIC_REQUIRE((Transition<PP, S0S1>::count<ReduceScatter> == 2 && collectives<PP, S0S1> == 2));
  STATIC_REQUIRE((Transition<PP, R2>::count<AllReduce> == 1 && collectives<PP, R2> == 1));
  STATIC_REQUIRE((Transition<S0S0, R2>::count<AllGather> == 1 && collectives<S0S0, R2> == 1));
  STATIC_REQUIRE(Transition<R2, S0S0>::count<Slice> == 1);
}

TEST_CASE("what does not merge", "[transition]") {
  // P, S, P onto one dimension: the shard in the middle separates the two reductions.
  using PSP = Layout<1, Partial<Sum, a, c>, Shard<0, b>>;
  STATIC_REQUIRE(collectives<PSP, Layout<1, Shard<0, a, b, c>>> == 3);
  // Two all_to_alls, although both go in the same direction.
  STATIC_REQUIRE(Transition<S0S0, Layout<2, Shard<1, b, a>>>::count<AllToAll> == 2);
  // Reductions of different operations.
  using Mixed = Layout<2, Partial<Sum, a>, Partial<Avg, b>>;
  STATIC_REQUIRE(Transition<Mixed, R2>::count<AllReduce> == 2);
}

TEST_CASE("the order of the steps moves the fewest bytes", "[transition]") {
  // Slice before gathering.
  using SliceFirst = Transition<Layout<2, Shard<0, a>>, Layout<2, Shard<1, b>>>;
  STATIC_REQUIRE(SliceFirst::steps[0].kind == StepKind::slice);
  STATIC_REQUIRE(SliceFirst::steps[1].kind == StepKind::all_gather);
  // Reduce-scatter before all-gather.
  using ReduceFirst = Transition<Layout<2, Partial<Sum, a>, Shard<0, b>>, Layout<2, Shard<1, a>>>;
  STATIC_REQUIRE(ReduceFirst::steps[0].kind == StepKind::reduce_scatter);
  STATIC_REQUIRE(ReduceFirst::steps[1].kind == StepKind::all_gather);
  // All-reduce after slicing and before gathering.
  using SliceReduce = Transition<Layout<2, Partial<Sum, a>>, Layout<2, Shard<0, b>>>;
  STATIC_REQUIRE(SliceReduce::steps[0].kind == StepKind::slice);
  STATIC_REQUIRE(SliceReduce::steps[1].kind == StepKind::all_reduce);
  using ReduceGather = Transition<Layout<2, Partial<Sum, a>, Shard<0, b>>, R2>;
  STATIC_REQUIRE(ReduceGather::steps[0].kind == StepKind::all_reduce);
  STATIC_REQUIRE(ReduceGather::steps[1].kind == StepKind::all_gather);
}

TEST_CASE("a step contains the layouts before and after it", "[transition]") {
  using Exchange = Transition<S0S1, S0S0>;
  STATIC_REQUIRE(Exchange::steps.size() == 1);
  STATIC_REQUIRE(Exchange::steps[0].before == Exchange::from_value);
  STATIC_REQUIRE(Exchange::steps[0].after == Exchange::to_value);
  STATIC_REQUIRE(Exchange::steps[0].dimension == 0);
  STATIC_REQUIRE(Exchange::steps[0].from_dimension == 1);
  STATIC_REQUIRE(Exchange::steps[0].axes == sequence({1}));
  STATIC_REQUIRE(Exchange::axes[1] == "b");
}

TEST_CASE("the table holds the axes of both layouts, sorted by name", "[transition]") {
  using Both = Transition<Layout<2, Shard<0, tp>>, Layout<2, Shard<1, dp, cp>>>;
  STATIC_REQUIRE(std::is_same_v<Both::axis_list, AxisList<cp, dp, tp>>);
  STATIC_REQUIRE(Both::from_value.shard(0) == sequence({2}));
  STATIC_REQUIRE(Both::to_value.shard(1) == sequence({1, 0}));
}

TEST_CASE("only the library may turn replicated into partial", "[transition]") {
  using Keep = InternalTransition<R2, Layout<2, Partial<Sum, tp>>>;
  STATIC_REQUIRE(Keep::steps.size() == 1);
  STATIC_REQUIRE(Keep::steps[0].kind == StepKind::keep_on_first);
  STATIC_REQUIRE(Keep::collectives == 0);
}

TEST_CASE("transitions from a rejected operation cause no further errors", "[transition]") {
  STATIC_REQUIRE(Transition<InvalidLayout, R2>::is_identity);
  STATIC_REQUIRE(Transition<PP, InvalidLayout>::collectives == 0);
}

TEST_CASE("a transition may name as many axes as a layout", "[transition]") {
  using Every = Layout<2, Shard<0, a, b, c, dp, tp, pp, cp, ep>>;
  STATIC_REQUIRE(Every::axis_list::size == max_axes);
  STATIC_REQUIRE(Transition<Every, Every>::is_identity);
  STATIC_REQUIRE(collectives<Every, Layout<2, Shard<0, a, b, c, dp, tp, pp, cp>>> == 1);
}

TEST_CASE("bytes of a transition at run-time extents", "[transition]") {
  constexpr std::array<int, 2> extents{4, 2};
  constexpr std::array<std::int64_t, 2> shape{16, 8};
  constexpr std::int64_t count = 16 * 8;
  STATIC_REQUIRE(Transition<PP, S0S0>::bytes(extents, shape, 4) == count * 7 / 8 * 4);
  STATIC_REQUIRE(Transition<PP, R2>::bytes(extents, shape, 4) == 2 * count * 7 / 8 * 4);
  STATIC_REQUIRE(Transition<S0S0, R2>::bytes(extents, shape, 8) == count * 7 / 8 * 8);
  STATIC_REQUIRE(Transition<S0S1, S0S0>::bytes(extents, shape, 4) == count / 8 / 2 * 4);
  STATIC_REQUIRE(Transition<R2, S0S0>::bytes(extents, shape, 4) == 0);
  STATIC_REQUIRE(detail::middle_of(extents) == std::array<int, max_axes>{2, 1});
  constexpr std::array<int, 2> trivial{1, 1};
  STATIC_REQUIRE(Transition<PP, S0S0>::bytes(trivial, shape, 4) == 0);
}
