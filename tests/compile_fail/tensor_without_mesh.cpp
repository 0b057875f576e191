// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: ShardedTensor: it must be made on a mesh, which says which block this rank holds (write ShardedTensor<Layout>(mesh, {extents}), or hold it in a std::optional)

#include <shardwright/tensor/sharded_tensor.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void make(const DeviceMesh<dp>& mesh) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(mesh);
  const ShardedTensor<Layout<2, Shard<0, dp>>> tensor({4, 8});
#else
  const ShardedTensor<Layout<2, Shard<0, dp>>> tensor(mesh, {4, 8});
#endif
}
