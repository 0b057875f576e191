// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: TokenTensor: ids, targets and attention must have the tokens in the same order, NaturalOrder for AllToAllContext and ZigZagOrder for RingContext (make the batch as the model's Ids, and fill it by their positions())

#include <shardwright/nn/decoder/token_tensor.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, dp>, Shard<1, cp>>;
struct Batch {
  TokenTensor<ZigZagOrder, Tokens>::Handle ids, targets;
};

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Order = NaturalOrder;
#else
using Order = ZigZagOrder;
#endif

Batch batch(const TokenTensor<ZigZagOrder, Tokens>& ids, const TokenTensor<Order, Tokens>& targets) {
  return {ids.share(), targets.share()};
}
