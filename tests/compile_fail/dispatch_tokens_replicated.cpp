// SPDX-License-Identifier: Apache-2.0
// expect: dispatch: every axis that owns experts must split the tokens, as ranks with the same tokens would send each of them twice
// expect: (read the tokens in a layout that shards them over it, too)

#include <shardwright/layout/ragged.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Tokens = Layout<2, Shard<0, dp>>;
#else
using Tokens = Layout<2, Shard<0, dp, ep>>;
#endif
static_assert(DispatchLayout<Tokens, AxisList<ep>>::tensor_rank >= 0);
