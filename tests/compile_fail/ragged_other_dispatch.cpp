// SPDX-License-Identifier: Apache-2.0
// expect: Ragged: both operands must come from the same dispatch
// expect: (dispatch what is combined with them in the same way)

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/ragged.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, dp, ep>>;
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Others = DispatchLayout<Tokens, AxisList<dp, ep>>;
#else
using Others = Rows;
#endif
static_assert(MultiplyLayout<Rows, Others>::tensor_rank >= 0);
