// SPDX-License-Identifier: Apache-2.0
// expect: combine: the gates must have the layout in which the tokens were dispatched
// expect: (redistribute them, or compute them from the tokens in that layout)

#include <shardwright/layout/ragged.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, dp, ep>>;
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Gates = Layout<2, Shard<0, dp>>;
#else
using Gates = Tokens;
#endif
static_assert(CombineLayout<Rows, Gates>::tensor_rank >= 0);
