// SPDX-License-Identifier: Apache-2.0
// expect: rms_norm: the last dimension must not be sharded (redistribute the input to gather it)

#include <shardwright/layout/elementwise_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<2, Shard<1, tp>>;
#else
using Input = Layout<2, Shard<0, tp>>;
#endif
static_assert(RowwiseLayout<operation::rms_norm, Input>::tensor_rank >= 0);
