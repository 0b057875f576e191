// SPDX-License-Identifier: Apache-2.0
// expect: grouped: an axis that splits the tokens must not shard rows or columns of the weights
// expect: (shard them over an axis that replicates the tokens)

#include <shardwright/layout/ragged.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Rows = DispatchLayout<Layout<2, Shard<0, dp, ep>>, AxisList<ep>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weights = Layout<3, Shard<0, ep>, Shard<2, dp>>;
#else
using Weights = Layout<3, Shard<0, ep>, Shard<2, tp>>;
#endif
static_assert(GroupedLayout<Rows, Weights>::tensor_rank >= 0);
