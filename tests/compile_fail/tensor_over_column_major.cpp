// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: tensor_over: the view must be row-major, as blocks of tensors are (make it with Kokkos::LayoutRight, or copy its elements into a tensor)

#include <shardwright/shardwright.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using View = Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace>;
#else
using View = Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace>;
#endif

void use(const DeviceMesh<dp>& mesh, const View& view) {
  const auto x = tensor_over<Layout<2, Shard<0, dp>>>(mesh, view, {8, 4});
}
