// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: cross_entropy: the targets must have the layout of the scores without their last dimension, replicated over the axes of the vocabulary (redistribute the targets to the second layout in the trace)

#include <shardwright/nn/losses/cross_entropy.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Scores = Layout<2, Shard<0, dp>, Shard<1, cp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Targets = Layout<1, Shard<0, tp>>; // of equal extents if dp and tp are equal, but of other rows
#else
using Targets = Layout<1, Shard<0, dp>>;
#endif

auto loss(const ShardedTensor<Scores>& scores, const ShardedTensor<Targets, std::int32_t>& targets) {
  return cross_entropy(scores, targets);
}
