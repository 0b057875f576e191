// SPDX-License-Identifier: Apache-2.0
// expect: Gradient: Max, Min and Product have no gradient layout (redistribute the value before it is used)

#include <shardwright/layout/gradient.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Value = Layout<1, Partial<Max, tp>>;
#else
using Value = Layout<1, Partial<Sum, tp>>;
#endif
static_assert(Gradient<Value>::tensor_rank >= 0);
