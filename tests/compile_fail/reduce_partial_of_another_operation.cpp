// SPDX-License-Identifier: Apache-2.0
// expect: reduce: the input must not be a Partial of another operation
// expect: (redistribute it first)

#include <shardwright/layout/reduction_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<2, Partial<Sum, tp>>;
#else
using Input = Layout<2, Partial<Max, tp>>;
#endif
static_assert(ReductionLayout<Max, 0, Input>::tensor_rank >= 0);
