// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: gather: the tensor must have no halos (redistribute it to WithoutHalos of its layout)

#include <shardwright/tensor/scatter_gather.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = Layout<2, Shard<0, dp, Halo<1>>>;
#else
using Rows = Layout<2, Shard<0, dp>>;
#endif

void collect(const ShardedTensor<Rows>& tensor) { static_cast<void>(gather(tensor, 0)); }
