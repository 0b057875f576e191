// SPDX-License-Identifier: Apache-2.0
// expect: Layout: a dimension may have one Halo (put all its axes into one Shard)

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, dp, Halo<1>>, Shard<0, tp, Halo<1>>>;
#else
using Placed = Layout<2, Shard<0, dp, tp, Halo<1>>>;
#endif
static_assert(Placed::tensor_rank == 2);
