// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: PerRank: the tensor must be split over the axis along which the number differs, but it is replicated or Partial there (give all its ranks one number, or redistribute the tensor)
// expect: dp

#include <shardwright/tensor/operators.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<1, Shard<0, tp>>;
#else
using L = Layout<1, Shard<0, dp>>;
#endif

auto weighted(const DeviceMesh<dp, tp>& mesh, const ShardedTensor<L>& x) {
  return x * PerRank<dp>(1 + mesh.coordinate<dp>());
}
