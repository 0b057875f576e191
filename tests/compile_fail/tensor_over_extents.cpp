// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Shape: there must be one extent for each dimension of the layout
// expect: ExtentsOf

#include <shardwright/tensor/tensor_over.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void make(const DeviceMesh<dp>& mesh, LocalView<float, 2> memory) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  const auto tensor = tensor_over<Layout<2, Shard<0, dp>>>(mesh, memory, {4, 2, 2});
#else
  const auto tensor = tensor_over<Layout<2, Shard<0, dp>>>(mesh, memory, {4, 4});
#endif
}
