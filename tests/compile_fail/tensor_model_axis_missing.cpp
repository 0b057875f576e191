// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Mesh: an axis that divides the model, such as pp, must not be named on a mesh that lacks it, since ranks along it hold other parts of the model (name other axes, or use the mesh that has it)
// expect: pp

#include <shardwright/tensor/sharded_tensor.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Mesh = DeviceMesh<dp>; // of a stage
#else
using Mesh = DeviceMesh<pp, dp>;
#endif

void make(const Mesh& mesh) { ShardedTensor<Layout<2, Shard<0, pp>>> tensor(mesh, {4, 4}); }
