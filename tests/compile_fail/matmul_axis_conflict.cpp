// SPDX-License-Identifier: Apache-2.0
// expect: matmul: an axis must not shard two dimensions of the result (gather one operand over it)

#include <shardwright/layout/matmul_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2, Shard<1, tp>>;
#else
using Right = Layout<2, Shard<1, dp>>;
#endif
static_assert(MatmulLayout<Layout<2, Shard<0, tp>>, Right>::tensor_rank >= 0);
