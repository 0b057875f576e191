// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Mesh: an axis that divides the model, such as pp, must not be named on a mesh that lacks it, since ranks along it hold other parts of the model (name other axes, or use the mesh that has it)
// expect: pp

#include <shardwright/mesh/device_mesh.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Asked = pp; // of which the mesh of a stage knows nothing
#else
using Asked = cp;
#endif

int stages(const DeviceMesh<dp, tp>& mesh_of_stage) { return mesh_of_stage.extent<Asked>(); }
