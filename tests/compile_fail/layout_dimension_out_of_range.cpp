// SPDX-License-Identifier: Apache-2.0
// expect: Shard: the dimension must be at least 0 and less than the tensor rank (count dimensions from 0)

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<2, dp>>;
#else
using Placed = Layout<2, Shard<1, dp>>;
#endif
static_assert(Placed::tensor_rank == 2);
