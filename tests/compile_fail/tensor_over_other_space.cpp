// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: tensor_over: the view must lie in the memory space of the tensor's target (name a target of that space after the layout, or copy the elements there)

#include <shardwright/shardwright.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Space = Kokkos::AnonymousSpace; // of memory that the type does not tell
#else
using Space = Kokkos::HostSpace;
#endif
using View = Kokkos::View<float*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

void use(const DeviceMesh<dp>& mesh, const View& view) {
  const auto x = tensor_over<Layout<1, Shard<0, dp>>>(mesh, view, {8});
}
