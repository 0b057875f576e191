// SPDX-License-Identifier: Apache-2.0
// expect: Ragged: rows grouped by expert can leave their layout only by combine(), and tokens enter it only by dispatch()
// expect: (call these instead)

#include <shardwright/layout/ragged.hpp>
#include <shardwright/layout/transition.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, ep>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#else
using Rows = Tokens;
#endif
static_assert(Transition<Rows, Layout<2>>::collectives >= 0);
