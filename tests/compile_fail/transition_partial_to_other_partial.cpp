// SPDX-License-Identifier: Apache-2.0
// expect: Transition: a Partial cannot become a Partial of another operation
// expect: (complete it first: ask for Replicate or Shard)

#include <shardwright/layout/transition.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<2, Partial<Max, tp>>;
#else
using To = Layout<2, Partial<Sum, tp>>;
#endif
static_assert(Transition<Layout<2, Partial<Sum, tp>>, To>::collectives >= 0);
