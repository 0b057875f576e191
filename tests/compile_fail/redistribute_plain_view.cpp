// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: redistribute: the input must be a ShardedTensor, whose layout says what moves (make one on the mesh, and fill or scatter the plain data into it)

#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Kokkos::View<float**>;
#else
using Input = ShardedTensor<Layout<2, Shard<0, dp>>>;
#endif

void gather(const Input& input) { static_cast<void>(redistribute<Layout<2>>(input)); }
