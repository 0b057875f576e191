// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/mesh_shape.hpp>
#include <shardwright/mesh/device_mesh.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace extent_of_no_axis {
// expect: Mesh: an axis must be an axis tag (derive the tag from axis_tag and give it a name
// expect: model

#ifdef SHARDWRIGHT_EXPECT_FAIL
struct model {};
#else
struct model : axis_tag<model> {
  static constexpr std::string_view name = "model";
};
#endif

auto wide() { return extent<model, 2>(); }
} // namespace extent_of_no_axis

namespace mesh_axis_twice {
// expect: MeshShape: an axis may appear only once in a mesh (remove the second one)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Second = dp;
#else
using Second = tp;
#endif

void make() {
  MeshShape shape{extent<dp>(2), extent<Second>(2)};
  static_cast<void>(shape);
}
} // namespace mesh_axis_twice

namespace mesh_model_axis_asked {
// expect: Mesh: an axis that divides the model, such as pp, must not be named on a mesh that lacks it, since ranks along it hold other parts of the model (name other axes, or use the mesh that has it)
// expect: pp

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Asked = pp; // of which the mesh of a stage knows nothing
#else
using Asked = cp;
#endif

int stages(const DeviceMesh<dp, tp>& mesh_of_stage) { return mesh_of_stage.extent<Asked>(); }
} // namespace mesh_model_axis_asked

namespace mesh_model_axis_missing {
// expect: Mesh: an axis that divides the model, such as pp, must not be named on a mesh that lacks it, since ranks along it hold other parts of the model (name other axes, or use the mesh that has it)
// expect: pp

#ifdef SHARDWRIGHT_EXPECT_FAIL
using MeshAxes = AxisList<dp>; // of a stage
#else
using MeshAxes = AxisList<pp, dp>;
#endif

constexpr bool fits = fits_mesh<Layout<2, Shard<0, dp, pp>>, MeshAxes>;

static_assert(fits && fits_mesh<Layout<2, Shard<0, tp>>, MeshAxes>);
} // namespace mesh_model_axis_missing

namespace mesh_not_an_axis {
// expect: Mesh: an axis must be an axis tag (derive the tag from axis_tag and give it a name
// expect: foo

struct foo {
  static constexpr std::string_view name = "dp";
};

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Asked = foo; // has the name, but is no tag
#else
using Asked = dp;
#endif

int ranks(const DeviceMesh<dp, tp>& mesh) { return mesh.extent<Asked>() * mesh.communicator<Asked>().size(); }
} // namespace mesh_not_an_axis

namespace mesh_static_extent {
// expect: extent: a static extent must be positive (use 1 for an axis that is not needed)

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int ranks = 0;
#else
constexpr int ranks = 1;
#endif

void make() { static_cast<void>(extent<dp, ranks>()); }
} // namespace mesh_static_extent
