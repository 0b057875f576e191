// SPDX-License-Identifier: Apache-2.0
// expect: add: both operands must be sharded alike (redistribute one of them)

#include <shardwright/layout/elementwise_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2, Shard<1, tp>>;
#else
using Right = Layout<2, Shard<0, tp>>;
#endif
static_assert(AddLayout<Layout<2, Shard<0, tp>>, Right>::tensor_rank >= 0);
