// SPDX-License-Identifier: Apache-2.0
// expect: linear operation: a Partial input must be a Sum or Avg (redistribute it first)

#include <shardwright/layout/elementwise_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<2, Partial<Max, tp>>;
#else
using Input = Layout<2, Partial<Sum, tp>>;
#endif
static_assert(ElementwiseLinearLayout<Input>::tensor_rank >= 0);
