// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: random fill: the tensor must have no halos (fill one without, and redistribute it)

#include <shardwright/tensor/fill.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = Layout<2, Shard<0, dp, Halo<1>>>;
#else
using Rows = Layout<2, Shard<0, dp>>;
#endif

void start(ShardedTensor<Rows>& tensor) { fill_uniform(tensor, {.seed = 1, .tensor = 0}); }
