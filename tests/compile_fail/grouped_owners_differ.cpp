// SPDX-License-Identifier: Apache-2.0
// expect: grouped: the weights must be [experts, in, out] and sharded in dimension 0 over the axes that own the experts of the rows, in their order
// expect: (use Shard<0, owners...>, as in the dispatch)

#include <shardwright/layout/ragged.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Rows = DispatchLayout<Layout<2, Shard<0, dp, ep>>, AxisList<dp, ep>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weights = Layout<3, Shard<0, ep, dp>>;
#else
using Weights = Layout<3, Shard<0, dp, ep>>;
#endif
static_assert(GroupedLayout<Rows, Weights>::tensor_rank >= 0);
