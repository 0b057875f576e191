// SPDX-License-Identifier: Apache-2.0

#include <shardwright/layout/transition.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace transition_many_axes {
// expect: Transition: at most 6 axes may change at once (go through an intermediate layout)

struct a1 : axis_tag<a1> {
  static constexpr std::string_view name = "a1";
};

struct a2 : axis_tag<a2> {
  static constexpr std::string_view name = "a2";
};

struct a3 : axis_tag<a3> {
  static constexpr std::string_view name = "a3";
};

struct a4 : axis_tag<a4> {
  static constexpr std::string_view name = "a4";
};

struct a5 : axis_tag<a5> {
  static constexpr std::string_view name = "a5";
};

struct a6 : axis_tag<a6> {
  static constexpr std::string_view name = "a6";
};

struct a7 : axis_tag<a7> {
  static constexpr std::string_view name = "a7";
};

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<2, Shard<1, a1, a2, a3, a4, a5, a6, a7>>;
#else
using To = Layout<2, Shard<1, a1, a2, a3, a4, a5, a6>>;
#endif

static_assert(Transition<Layout<2, Shard<0, a7>>, Layout<2, Shard<0, a7>>>::is_identity);

static_assert(Transition<Layout<2>, To>::collectives == 0);
} // namespace transition_many_axes

namespace transition_partial_to_other_partial {
// expect: Transition: a Partial cannot become a Partial of another operation
// expect: (complete it first: ask for Replicate or Shard)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<2, Partial<Max, tp>>;
#else
using To = Layout<2, Partial<Sum, tp>>;
#endif

static_assert(Transition<Layout<2, Partial<Sum, tp>>, To>::collectives >= 0);
} // namespace transition_partial_to_other_partial

namespace transition_ordered_to_unordered {
// expect: Transition: a Partial cannot become a Partial of another operation
// expect: (complete it first: ask for Replicate or Shard)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<0, Partial<Sum, tp>>;
#else
using To = Layout<0>;
#endif

static_assert(Transition<Layout<0, Partial<OrderedSum, tp>>, To>::collectives >= 0);
} // namespace transition_ordered_to_unordered

namespace transition_replicate_to_partial {
// expect: Transition: a replicated value cannot become Partial
// expect: (it is already complete: keep it replicated or ask for Shard)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<2, Partial<Sum, tp>>;
#else
using To = Layout<2, Shard<0, tp>>;
#endif

static_assert(Transition<Layout<2>, To>::collectives >= 0);
} // namespace transition_replicate_to_partial

namespace transition_shard_to_partial {
// expect: Transition: Shard cannot become Partial (ask for Replicate, or keep the Shard)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<2, Partial<Sum, tp>>;
#else
using To = Layout<2, Shard<1, tp>>;
#endif

static_assert(Transition<Layout<2, Shard<0, tp>>, To>::collectives >= 0);
} // namespace transition_shard_to_partial

namespace transition_tensor_rank {
// expect: Transition: both layouts must have the same tensor rank (redistribute does not reshape)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<3, Shard<0, tp>>;
#else
using To = Layout<2, Shard<0, tp>>;
#endif

static_assert(Transition<Layout<2>, To>::collectives >= 0);
} // namespace transition_tensor_rank
