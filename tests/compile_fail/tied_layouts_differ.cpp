// SPDX-License-Identifier: Apache-2.0
// expect: TiedLayouts: tied weights must have the same layout
// expect: (give both the same, or redistribute before the second use)

#include <shardwright/layout/gradient.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Output = Layout<2, Shard<1, tp>>;
#else
using Output = Layout<2, Shard<0, tp>>;
#endif
static_assert(TiedLayouts<Layout<2, Shard<0, tp>>, Output>::tensor_rank >= 0);
