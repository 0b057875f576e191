// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: axpy: both tensors must have the same layout (redistribute x)

#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void step(const ShardedTensor<Layout<1>>& x, ShardedTensor<Layout<1, Shard<0, dp>>>& y) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  axpy(-0.1, x, y);
#else
  axpy(-0.1, redistribute<Layout<1, Shard<0, dp>>>(x), y);
#endif
}
