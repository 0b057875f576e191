// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/layout/transition.hpp>
#include <shardwright/layout/zero.hpp>

#include <type_traits>

// The three layouts of each choice of sharding, and the collectives between them.

namespace {

using namespace shardwright;
using namespace shardwright::axis;

using Weight = Layout<2, Shard<0, tp>>;
using Raw = Layout<2, Shard<0, tp>, Partial<Sum, dpr, dp, cp>>;
using Gain = Layout<1>;
using RawGain = Layout<1, Partial<Sum, dpr, dp, cp, tp>>;

using SharedWeight = Layout<2, Shard<0, tp, dp, cp>>;
using SharedRaw = Layout<2, Shard<0, tp, dp, cp>, Partial<Sum, dpr>>;

template <class Zero, class Stored, class Accumulator, class State>
constexpr bool is = std::is_same_v<typename Zero::template Stored<Weight>, Stored>&&
    std::is_same_v<typename Zero::template Accumulator<Weight, Raw>, Accumulator>&&
        std::is_same_v<typename Zero::template State<Weight>, State>;

/// The transitions of a weight and its gradient in a step.
template <class Zero, class Compute = Weight, class RawGradient = Raw> struct StepOf {
  using State = typename Zero::template State<Compute>;
  using Reduced = ReducedGradient<RawGradient, State, typename Zero::axes>;
  using First = Transition<RawGradient, Reduced>;
  using Second = Transition<Reduced, State>;
  using Store = Transition<State, typename Zero::template Stored<Compute>>;
  using Gather = Transition<typename Zero::template Stored<Compute>, Compute>;
};

} // namespace

TEST_CASE("ZeRO stages are three layouts: replicated, partial or sharded") {
  STATIC_REQUIRE(is<DataParallel, Weight, Raw, Weight>);
  STATIC_REQUIRE(is<Zero1, Weight, Raw, SharedWeight>);
  STATIC_REQUIRE(is<Zero2, Weight, SharedRaw, SharedWeight>);
  STATIC_REQUIRE(is<Zero3, SharedWeight, SharedRaw, SharedWeight>);
  STATIC_REQUIRE(is<ReduceOncePerStep<Zero3>, SharedWeight, Raw, SharedWeight>);
  STATIC_REQUIRE(std::is_same_v<Zero3::Stored<Gain>, Layout<1, Shard<0, dp, cp>>>);
  // An axis that a layout uses already stays where it is.
  STATIC_REQUIRE(
      std::is_same_v<Zero3::Stored<Layout<2, Shard<1, dp>>>, Layout<2, Shard<0, cp>, Shard<1, dp>>>);
}

TEST_CASE("ZeRO over the axes of a model with experts shards an expert where it has copies") {
  using Axes = AxisList<dp, ep, cp>;
  using Expert = Layout<3, Shard<0, ep>, Shard<2, tp>>;
  using Raw3 = Layout<3, Shard<0, ep>, Shard<2, tp>, Partial<Sum, dpr, dp, cp>>;
  using Shared = Layout<3, Shard<0, ep, dp, cp>, Shard<2, tp>>;
  using Reduced = Layout<3, Shard<0, ep, dp, cp>, Shard<2, tp>, Partial<Sum, dpr>>;
  STATIC_REQUIRE(std::is_same_v<DataParallelOver<Axes>::State<Expert>, Expert>);
  STATIC_REQUIRE(std::is_same_v<Zero1Over<Axes>::State<Expert>, Shared>);
  STATIC_REQUIRE(std::is_same_v<Zero1Over<Axes>::Accumulator<Expert, Raw3>, Raw3>);
  STATIC_REQUIRE(std::is_same_v<Zero2Over<Axes>::Accumulator<Expert, Raw3>, Reduced>);
  STATIC_REQUIRE(std::is_same_v<Zero2Over<Axes>::Stored<Expert>, Expert>);
  STATIC_REQUIRE(std::is_same_v<Zero3Over<Axes>::Stored<Expert>, Shared>);
  STATIC_REQUIRE(std::is_same_v<Zero3Over<Axes>::Stored<Gain>, Layout<1, Shard<0, dp, ep, cp>>>);
}

TEST_CASE("the collectives of a ZeRO stage follow from its layouts") {
  using Plain = StepOf<DataParallel>;
  STATIC_REQUIRE((Plain::First::count<AllReduce> == 1 && Plain::First::collectives == 1));
  STATIC_REQUIRE((Plain::Store::is_identity && Plain::Gather::is_identity));
  using One = StepOf<Zero1>;
  STATIC_REQUIRE((One::First::count<ReduceScatter> == 1 && One::First::collectives == 1));
  STATIC_REQUIRE((One::Store::count<AllGather> == 1 && One::Gather::is_identity));
  using Three = StepOf<Zero3>;
  STATIC_REQUIRE((Three::First::count<ReduceScatter> == 1 && Three::First::collectives == 1));
  STATIC_REQUIRE((Three::Store::is_identity && Three::Gather::count<AllGather> == 1));
  // Replicas of a shard group, and for a gain the ranks of tp, add one all_reduce.
  STATIC_REQUIRE((Three::Second::count<AllReduce> == 1 && Three::Second::collectives == 1));
  using ThreeGain = StepOf<Zero3, Gain, RawGain>;
  STATIC_REQUIRE((ThreeGain::First::collectives == 1 && ThreeGain::Second::collectives == 1));
}
