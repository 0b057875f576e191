// SPDX-License-Identifier: Apache-2.0
// expect: dispatch: the tokens must be whole rows, neither Partial nor sharded in their last dimension, nor already dispatched
// expect: (read them in a layout that shards tokens only)

#include <shardwright/layout/ragged.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Tokens = Layout<2, Shard<0, ep>, Partial<Sum, tp>>;
#else
using Tokens = Layout<2, Shard<0, ep>>;
#endif
static_assert(DispatchLayout<Tokens, AxisList<ep>>::tensor_rank >= 0);
