// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: insert_columns: neither operand may be Partial, and both must have whole rows and be split alike, except for the second-to-last dimension, which the columns may lack (redistribute one of them)

#include <shardwright/tensor/insert_columns.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Heads = Layout<4, Shard<0, dp>, Shard<2, tp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Shared = Layout<3, Shard<0, dp>, Shard<1, tp>>; // a stream that is split over tp, too
#else
using Shared = Layout<3, Shard<0, dp>>;
#endif

void join(const ShardedTensor<Heads>& keys, const ShardedTensor<Shared>& rotary_keys) {
  static_cast<void>(insert_columns(keys, rotary_keys, 4));
}
