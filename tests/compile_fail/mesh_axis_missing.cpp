// SPDX-License-Identifier: Apache-2.0
// expect: Mesh: the mesh must have every axis that a layout names (add it, with extent 1 if it is not used)
// expect: tp

#include <shardwright/layout/gradient.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using MeshAxes = AxisList<dp>;
#else
using MeshAxes = AxisList<dp, tp>;
#endif
constexpr bool fits = fits_mesh<Layout<2, Shard<0, tp>>, MeshAxes>;
static_assert(fits || !fits);
