// SPDX-License-Identifier: Apache-2.0
// expect: multiply: Partial times Partial is not defined (redistribute one operand first)

#include <shardwright/layout/elementwise_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2, Partial<Sum, tp>>;
#else
using Right = Layout<2>;
#endif
static_assert(MultiplyLayout<Layout<2, Partial<Sum, tp>>, Right>::tensor_rank >= 0);
