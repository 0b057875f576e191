// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: reshape: of the dimensions that are regrouped only the first may be sharded (redistribute the input, or merge and split dimensions that are not)

#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reshape.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void split(const ShardedTensor<Layout<2, Shard<1, tp>>>& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(reshape(x, {6, 2, 4})); // the blocks of dimension 1 are no blocks of what it becomes
#else
  static_cast<void>(reshape(redistribute<Layout<2, Shard<0, tp>>>(x), {6, 2, 4}));
#endif
}
