// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: dropout: the tensor must have no halos, whose copies would get different masks (redistribute it to WithoutHalos of its layout)

#include <shardwright/nn/layers/dropout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = Layout<2, Shard<0, dp, Halo<1>>>;
#else
using Rows = Layout<2, Shard<0, dp>>;
#endif

auto dropped(const ShardedTensor<Rows>& tensor, const DropoutUse& use, const BatchOrigin& origin) {
  return dropout(tensor, use, origin);
}
