// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: tensor_over: the memory must be a Kokkos::View (wrap a pointer and its extents in an unmanaged one)

#include <shardwright/shardwright.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void use(const DeviceMesh<dp>& mesh, float* memory) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  const auto x = tensor_over<Layout<1>>(mesh, memory, {8});
#else
  const auto x = tensor_over<Layout<1>>(mesh, LocalView<float, 1>(memory, 8), {8});
#endif
}
