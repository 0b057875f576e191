// SPDX-License-Identifier: Apache-2.0
// expect: add: both operands must carry the same halos (redistribute one of them)

#include <shardwright/layout/elementwise_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Left = Layout<2, Shard<0, dp, Halo<1>>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2, Shard<0, dp>>;
#else
using Right = Left;
#endif
static_assert(AddLayout<Left, Right>::tensor_rank >= 0);
