// SPDX-License-Identifier: Apache-2.0

#include <shardwright/layout/gradient.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace gradient_of_avg {
// expect: Gradient: an Avg needs a scale of 1/N in its gradient (scale by 1/N and use Partial<Sum>)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Value = Layout<1, Partial<Avg, tp>>;
#else
using Value = Layout<1, Partial<Sum, tp>>;
#endif

static_assert(Gradient<Value>::tensor_rank >= 0);
} // namespace gradient_of_avg

namespace gradient_of_max {
// expect: Gradient: Max, Min and Product have no gradient layout (redistribute the value before it is used)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Value = Layout<1, Partial<Max, tp>>;
#else
using Value = Layout<1, Partial<Sum, tp>>;
#endif

static_assert(Gradient<Value>::tensor_rank >= 0);
} // namespace gradient_of_max
