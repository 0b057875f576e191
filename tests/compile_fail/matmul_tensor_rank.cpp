// SPDX-License-Identifier: Apache-2.0
// expect: matmul: the operands' numbers of dimensions must fit [M..., k] x [k, N...] or one of its two
// expect: gradients, and the result must have at most 6 (merge dimensions)

#include <shardwright/layout/matmul_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<1>;
#else
using Right = Layout<3>;
#endif
static_assert(MatmulLayout<Layout<3>, Right, MatmulForm::left_transposed>::tensor_rank >= 0);
