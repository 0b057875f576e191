// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Operation: both tensors must have the same element type (convert one first)

#include <shardwright/tensor/matmul.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = double;
#else
using Element = float;
#endif

void multiply_by(const ShardedTensor<Layout<2>>& x,
                 const ShardedTensor<Layout<2, Shard<1, tp>>, Element>& w) {
  const auto y = matmul(x, w);
  static_cast<void>(y);
}
