// SPDX-License-Identifier: Apache-2.0
// expect: Gradient: an Avg needs a scale of 1/N in its gradient (scale by 1/N and use Partial<Sum>)

#include <shardwright/layout/gradient.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Value = Layout<1, Partial<Avg, tp>>;
#else
using Value = Layout<1, Partial<Sum, tp>>;
#endif
static_assert(Gradient<Value>::tensor_rank >= 0);
