// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: add_positions: neither tensor may have halos (redistribute it to WithoutHalos of its layout)

#include <shardwright/nn/layers/position_embedding.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Stream = Layout<3, Shard<0, dp, Halo<1>>>;
#else
using Stream = Layout<3, Shard<0, dp>>;
#endif

void add_learned(const ShardedTensor<Stream>& x, const ShardedTensor<Layout<2>>& table) {
  static_cast<void>(add_positions(x, table));
}
