// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: attention: a sharded sequence must come with its positions (redistribute the input, and shard its heads, or pass the positions() of the token ids)

#include <shardwright/nn/attention.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Qkv = Layout<4, Shard<0, dp>, Shard<1, tp>>;
#else
using Qkv = Layout<4, Shard<0, dp>, Shard<2, tp>>;
#endif

void attend(const ShardedTensor<Qkv>& qkv) { static_cast<void>(attention(qkv, {.queries = 2, .width = 8})); }
