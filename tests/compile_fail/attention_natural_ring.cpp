// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: attention: a sharded sequence, as in the ring, must be in ZigZagOrder (make the batch with RingContext, or redistribute the input to shard its heads with AllToAllContext)

#include <shardwright/nn/attention/context_attention.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Order = NaturalOrder;
#else
using Order = ZigZagOrder;
#endif

void attend(const ShardedTensor<Layout<4, Shard<1, cp>, Shard<2, tp>>>& qkv,
            const TokenTensor<Order, Layout<2, Shard<1, cp>>>& ids) {
  static_cast<void>(attention(qkv, ids.positions(), {.queries = 2, .width = 8}));
}
