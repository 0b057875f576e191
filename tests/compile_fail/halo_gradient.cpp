// SPDX-License-Identifier: Apache-2.0
// expect: Gradient: a layout with halos has no gradient layout, as the gradients of copies belong to their owners
// expect: (call add_halos on the tensor of gradients, and use the layout without halos on the tape)

#include <shardwright/layout/gradient.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Rows = Layout<2, Shard<0, dp, Halo<1>>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Value = Rows;
#else
using Value = WithoutHalos<Rows>;
#endif
static_assert(Gradient<Value>::tensor_rank >= 0);
