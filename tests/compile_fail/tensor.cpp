// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/shardwright.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/tensor_over.hpp>

#include <optional>

using namespace shardwright;
using namespace shardwright::axis;

namespace tensor_default {
// expect: ShardedTensor: it must be made on a mesh, which says which block this rank holds

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Held = ShardedTensor<Layout<2, Shard<0, dp>>>;
#else
using Held = std::optional<ShardedTensor<Layout<2, Shard<0, dp>>>>;
#endif

void make() { const Held tensor; }
} // namespace tensor_default

namespace tensor_extents {
// expect: Shape: there must be one extent for each dimension of the layout (give as many extents, or name the rank that they have in the layout)
// expect: ExtentsOf

void make(const DeviceMesh<dp>& mesh) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  const ShardedTensor<Layout<2>> tensor(mesh, {4});
#else
  const ShardedTensor<Layout<2>> tensor(mesh, {4, 1});
#endif
}
} // namespace tensor_extents

namespace tensor_extents_missing {
// expect: Shape: there must be one extent for each dimension of the layout
// expect: ExtentsOf

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<1>;
#else
using L = Layout<0>;
#endif

void make(const DeviceMesh<dp>& mesh) { const ShardedTensor<L> tensor(mesh, {}); }
} // namespace tensor_extents_missing

namespace tensor_model_axis_missing {
// expect: Mesh: an axis that divides the model, such as pp, must not be named on a mesh that lacks it, since ranks along it hold other parts of the model (name other axes, or use the mesh that has it)
// expect: pp

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Mesh = DeviceMesh<dp>; // of a stage
#else
using Mesh = DeviceMesh<pp, dp>;
#endif

void make(const Mesh& mesh) { ShardedTensor<Layout<2, Shard<0, pp>>> tensor(mesh, {4, 4}); }
} // namespace tensor_model_axis_missing

namespace tensor_over_column_major {
// expect: tensor_over: the view must be row-major, as blocks of tensors are (make it with Kokkos::LayoutRight, or copy its elements into a tensor)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using View = Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace>;
#else
using View = Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace>;
#endif

void use(const DeviceMesh<dp>& mesh, const View& view) {
  const auto x = tensor_over<Layout<2, Shard<0, dp>>>(mesh, view, {8, 4});
}
} // namespace tensor_over_column_major

namespace tensor_over_extents {
// expect: Shape: there must be one extent for each dimension of the layout
// expect: ExtentsOf

void make(const DeviceMesh<dp>& mesh, LocalView<float, 2> memory) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  const auto tensor = tensor_over<Layout<2, Shard<0, dp>>>(mesh, memory, {4, 2, 2});
#else
  const auto tensor = tensor_over<Layout<2, Shard<0, dp>>>(mesh, memory, {4, 4});
#endif
}
} // namespace tensor_over_extents

namespace tensor_over_other_rank {
// expect: tensor_over: the view must have as many dimensions as the layout (give the layout the view's rank, or reshape the view)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using View = Kokkos::View<float*, Kokkos::HostSpace>;
#else
using View = Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace>;
#endif

void use(const DeviceMesh<dp>& mesh, const View& view) {
  const auto x = tensor_over<Layout<2, Shard<0, dp>>>(mesh, view, {8, 4});
}
} // namespace tensor_over_other_rank

namespace tensor_over_other_space {
// expect: tensor_over: the view must lie in the memory space of the tensor's target (name a target of that space after the layout, or copy the elements there)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Space = Kokkos::AnonymousSpace; // of memory that the type does not tell
#else
using Space = Kokkos::HostSpace;
#endif

using View = Kokkos::View<float*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

void use(const DeviceMesh<dp>& mesh, const View& view) {
  const auto x = tensor_over<Layout<1, Shard<0, dp>>>(mesh, view, {8});
}
} // namespace tensor_over_other_space

namespace tensor_over_plain_pointer {
// expect: tensor_over: the memory must be a Kokkos::View (wrap a pointer and its extents in an unmanaged one)

void use(const DeviceMesh<dp>& mesh, float* memory) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  const auto x = tensor_over<Layout<1>>(mesh, memory, {8});
#else
  const auto x = tensor_over<Layout<1>>(mesh, LocalView<float, 1>(memory, 8), {8});
#endif
}
} // namespace tensor_over_plain_pointer

namespace tensor_over_without_layout {
// expect: tensor_over: the layout must be named, because memory does not tell how ranks share it (write tensor_over<Layout<2, Shard<0, dp>>>(mesh, view, {extents}))

void use(const DeviceMesh<dp>& mesh, LocalView<float, 1> memory) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  tensor_over(mesh, memory, {8});
#else
  static_cast<void>(tensor_over<Layout<1>>(mesh, memory, {8}));
#endif
}
} // namespace tensor_over_without_layout

namespace tensor_without_mesh {
// expect: ShardedTensor: it must be made on a mesh, which says which block this rank holds (write ShardedTensor<Layout>(mesh, {extents}), or hold it in a std::optional)

void make(const DeviceMesh<dp>& mesh) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(mesh);
  const ShardedTensor<Layout<2, Shard<0, dp>>> tensor({4, 8});
#else
  const ShardedTensor<Layout<2, Shard<0, dp>>> tensor(mesh, {4, 8});
#endif
}
} // namespace tensor_without_mesh
