// SPDX-License-Identifier: Apache-2.0
// expect: matmul: the contracted dimensions must be sharded alike (redistribute one operand)

#include <shardwright/layout/matmul_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2>;
#else
using Right = Layout<2, Shard<0, tp>>;
#endif
static_assert(MatmulLayout<Layout<2, Shard<1, tp>>, Right>::tensor_rank >= 0);
