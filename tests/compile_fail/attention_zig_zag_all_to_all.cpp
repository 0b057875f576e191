// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: attention: whole sequences, as in all-to-all, must be in NaturalOrder (make the batch with AllToAllContext, or keep the sequence sharded with RingContext)

#include <shardwright/nn/attention/context_attention.hpp>
#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Order = ZigZagOrder;
#else
using Order = NaturalOrder;
#endif

using Qkv = Layout<4, Shard<1, cp>, Shard<2, tp>>;

void attend(const ShardedTensor<Qkv>& qkv, const TokenTensor<Order, Layout<2, Shard<1, cp>>>& ids) {
  const auto heads = redistribute<AllToAllContext::AttentionInput<Qkv>>(qkv);
  static_cast<void>(attention(heads, ids.positions(), {.queries = 2, .width = 8}));
}
