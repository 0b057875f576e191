// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: redistribute_into: the destination must own its memory, not be a read-only handle (write into the tensor that owns the memory, or into a new one)

#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = const float;
#else
using Element = float;
#endif

void gather(const ShardedTensor<Layout<2, Shard<0, dp>>>& from, ShardedTensor<Layout<2>, Element>& to) {
  redistribute_into(from, to);
}
