// SPDX-License-Identifier: Apache-2.0
// expect: gelu_tanh: the input must not be Partial, an incomplete sum (redistribute it first)
// expect: tp

#include <shardwright/layout/elementwise_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<2, Shard<0, dp>, Partial<Sum, tp>>;
#else
using Input = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#endif
// The second operation is silent: only the first one is wrong.
using Activated = ElementwiseNonlinearLayout<operation::gelu_tanh, Input>;
static_assert(ElementwiseLinearLayout<Activated>::tensor_rank >= 0);
