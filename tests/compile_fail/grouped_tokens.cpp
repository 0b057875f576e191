// SPDX-License-Identifier: Apache-2.0
// expect: grouped: the left operand must be rows grouped by expert (dispatch the tokens)

#include <shardwright/layout/ragged.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, ep>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = Tokens;
#else
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#endif
static_assert(GroupedLayout<Rows, Layout<3, Shard<0, ep>>>::tensor_rank >= 0);
