// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Operation: sharded and plain tensors must not be mixed (make a ShardedTensor on the mesh, and fill or scatter the plain data into it)

#include <shardwright/tensor/matmul.hpp>

#include <vector>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = std::vector<float>;
#else
using Right = ShardedTensor<Layout<2, Shard<1, tp>>>;
#endif

void multiply_by(const ShardedTensor<Layout<2>>& x, const Right& w) { static_cast<void>(matmul(x, w)); }
