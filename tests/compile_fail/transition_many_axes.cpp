// SPDX-License-Identifier: Apache-2.0
// expect: Transition: at most 6 axes may change at once (go through an intermediate layout)

#include <shardwright/layout/transition.hpp>

using namespace shardwright;
using namespace shardwright::axis;

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
