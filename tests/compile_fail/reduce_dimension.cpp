// SPDX-License-Identifier: Apache-2.0
// expect: reduce: the dimension must be at least 0 and less than the tensor rank (count from 0)

#include <shardwright/layout/reduction_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int dimension = 2;
#else
constexpr int dimension = 1;
#endif
static_assert(ReductionLayout<Sum, dimension, Layout<2>>::tensor_rank >= 0);
