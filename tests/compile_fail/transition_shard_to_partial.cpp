// SPDX-License-Identifier: Apache-2.0
// expect: Transition: Shard cannot become Partial (ask for Replicate, or keep the Shard)

#include <shardwright/layout/transition.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<2, Partial<Sum, tp>>;
#else
using To = Layout<2, Shard<1, tp>>;
#endif
static_assert(Transition<Layout<2, Shard<0, tp>>, To>::collectives >= 0);
