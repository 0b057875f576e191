// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Mesh: the mesh must have every axis that a layout names (add it, with extent 1 if it is not used)
// expect: tp

#include <shardwright/tensor/sharded_tensor.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Mesh = DeviceMesh<dp>;
#else
using Mesh = DeviceMesh<dp, tp>;
#endif

void make(const Mesh& mesh) { ShardedTensor<Layout<2, Shard<0, tp>>> tensor(mesh, {4, 4}); }
