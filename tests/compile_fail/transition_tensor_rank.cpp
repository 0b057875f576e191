// SPDX-License-Identifier: Apache-2.0
// expect: Transition: both layouts must have the same tensor rank (redistribute does not reshape)

#include <shardwright/layout/transition.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<3, Shard<0, tp>>;
#else
using To = Layout<2, Shard<0, tp>>;
#endif
static_assert(Transition<Layout<2>, To>::collectives >= 0);
