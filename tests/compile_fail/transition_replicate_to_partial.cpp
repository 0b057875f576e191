// SPDX-License-Identifier: Apache-2.0
// expect: Transition: a replicated value cannot become Partial
// expect: (it is already complete: keep it replicated or ask for Shard)

#include <shardwright/layout/transition.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<2, Partial<Sum, tp>>;
#else
using To = Layout<2, Shard<0, tp>>;
#endif
static_assert(Transition<Layout<2>, To>::collectives >= 0);
