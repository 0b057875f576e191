// SPDX-License-Identifier: Apache-2.0
// expect: Halo: this operation has no meaning on copies of the neighbours' elements
// expect: (redistribute its operands to WithoutHalos of their layouts)

#include <shardwright/layout/matmul_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Rows = Layout<2, Shard<0, dp, Halo<1>>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Left = Rows;
#else
using Left = WithoutHalos<Rows>;
#endif
static_assert(MatmulLayout<Left, Layout<2>>::tensor_rank >= 0);
