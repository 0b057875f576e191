// SPDX-License-Identifier: Apache-2.0
// expect: Halo: the widths must be at least 0, at most 16383 and not both 0 (leave the Halo out for none)

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, dp, Halo<1, -1>>>;
#else
using Placed = Layout<2, Shard<0, dp, Halo<1, 0>>>;
#endif
static_assert(Placed::tensor_rank == 2);
