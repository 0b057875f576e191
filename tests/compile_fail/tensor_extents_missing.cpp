// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Shape: there must be one extent for each dimension of the layout
// expect: ExtentsOf

#include <shardwright/tensor/sharded_tensor.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<1>;
#else
using L = Layout<0>;
#endif

void make(const DeviceMesh<dp>& mesh) { const ShardedTensor<L> tensor(mesh, {}); }
