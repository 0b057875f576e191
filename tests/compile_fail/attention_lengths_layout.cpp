// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: attention: the key lengths must be sharded like dimension 0 of the input (make them in its KeyLengthsLayout)

#include <shardwright/nn/attention.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Qkv = Layout<4, Shard<0, dp>, Shard<2, tp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Lengths = Layout<1>;
#else
using Lengths = Layout<1, Shard<0, dp>>; // KeyLengthsLayout<Qkv>
#endif

void attend(const ShardedTensor<Qkv>& qkv, const ShardedTensor<Lengths, std::int32_t>& lengths) {
  static_cast<void>(attention(qkv, {.queries = 2, .width = 8}, padded(full, lengths)));
}
