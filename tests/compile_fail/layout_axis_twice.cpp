// SPDX-License-Identifier: Apache-2.0
// expect: Layout: an axis may be named only once (it shards one dimension, or is Partial, or is replicated)

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, dp>, Shard<1, dp>>;
#else
using Placed = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#endif
static_assert(Placed::tensor_rank == 2);
