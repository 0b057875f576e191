// SPDX-License-Identifier: Apache-2.0
// expect: Shard: a Halo must be the last argument, after the axes (write Shard<0, x, Halo<1>>)

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, Halo<1>, dp>>;
#else
using Placed = Layout<2, Shard<0, dp, Halo<1>>>;
#endif
static_assert(Placed::tensor_rank == 2);
