// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: cross_entropy: the targets must have the layout of the scores without their last dimension, replicated over the axes of the vocabulary (redistribute the targets to the second layout in the trace)

#include <shardwright/nn/losses/linear_cross_entropy.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Hidden = Layout<2, Shard<0, dp>>;
using Table = Parameter<Layout<2, Shard<0, tp>>, Layout<2, Shard<0, tp>, Partial<Sum, dp>>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Targets = Layout<1>; // every rank has those of all
#else
using Targets = Layout<1, Shard<0, dp>>;
#endif

auto loss(const Var<Hidden>& x, Table& table, const ShardedTensor<Targets, std::int32_t>& targets) {
  return linear_cross_entropy(x, table, targets);
}
