// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Shape: there must be one extent for each dimension of the layout
// expect: ExtentsOf

#include <shardwright/nn/layers/linear.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void make(const DeviceMesh<dp>& mesh) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  const Linear<Layout<2, Shard<0, dp>>, Layout<2>> product(mesh, {4}, Initial::normal(0.02));
#else
  const Linear<Layout<2, Shard<0, dp>>, Layout<2>> product(mesh, {4, 8}, Initial::normal(0.02));
#endif
}
