// SPDX-License-Identifier: Apache-2.0
// expect: Layout: a placement's arguments must be axis tags
// expect: (derive the tag from axis_tag and give it a name)

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, int>>;
#else
using Placed = Layout<2, Shard<0, dp>>;
#endif
static_assert(Placed::tensor_rank == 2);
