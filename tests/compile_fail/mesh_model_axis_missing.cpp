// SPDX-License-Identifier: Apache-2.0
// expect: Mesh: an axis that divides the model, such as pp, must not be named on a mesh that lacks it, since ranks along it hold other parts of the model (name other axes, or use the mesh that has it)
// expect: pp

#include <shardwright/layout/gradient.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using MeshAxes = AxisList<dp>; // of a stage
#else
using MeshAxes = AxisList<pp, dp>;
#endif
constexpr bool fits = fits_mesh<Layout<2, Shard<0, dp, pp>>, MeshAxes>;
static_assert(fits && fits_mesh<Layout<2, Shard<0, tp>>, MeshAxes>);
