// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: tensor_over: the layout must be named, because memory does not tell how ranks share it (write tensor_over<Layout<2, Shard<0, dp>>>(mesh, view, {extents}))

#include <shardwright/tensor/tensor_over.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void use(const DeviceMesh<dp>& mesh, LocalView<float, 1> memory) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  tensor_over(mesh, memory, {8});
#else
  static_cast<void>(tensor_over<Layout<1>>(mesh, memory, {8}));
#endif
}
