// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Halo: the layout of the tensor must have halos (name one in its Shard: Shard<0, x, Halo<1>>, and redistribute to it)

#include <shardwright/tensor/halos.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = Layout<2, Shard<0, dp>>;
#else
using Rows = Layout<2, Shard<0, dp, Halo<1>>>;
#endif

void refresh(ShardedTensor<Rows>& tensor) { refresh_halos(tensor); }
