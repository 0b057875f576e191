// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Mesh: an axis that divides the model, such as pp, must not be named on a mesh that lacks it, since ranks along it hold other parts of the model (name other axes, or use the mesh that has it)

#include <shardwright/nn/experts/load.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Tokens = Layout<2, Shard<0, dp, pp>>; // ranks of pp hold other layers, with experts of their own
#else
using Tokens = Layout<2, Shard<0, dp>>;
#endif

auto load_of_layer(const DeviceMesh<dp, tp>& mesh_of_stage) { return ExpertLoad<Tokens>(mesh_of_stage, 8); }
