// SPDX-License-Identifier: Apache-2.0
// expect: transpose: both dimensions must be at least 0 and less than the tensor rank (count from 0)

#include <shardwright/layout/shape_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int first = 2;
#else
constexpr int first = 0;
#endif
static_assert(TransposeLayout<Layout<2, Shard<0, dp>>, first, 1>::tensor_rank >= 0);
