// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Shape: there must be one extent for each dimension of the layout (give as many extents, or name the rank that they have in the layout)
// expect: ExtentsOf

#include <shardwright/tensor/sharded_tensor.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void make(const DeviceMesh<dp>& mesh) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  const ShardedTensor<Layout<2>> tensor(mesh, {4});
#else
  const ShardedTensor<Layout<2>> tensor(mesh, {4, 1});
#endif
}
