// SPDX-License-Identifier: Apache-2.0
// expect: transpose, reshape: the input must not carry halos (redistribute it to WithoutHalos of its layout)

#include <shardwright/layout/shape_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Rows = Layout<2, Shard<0, dp, Halo<1>>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Rows;
#else
using Input = WithoutHalos<Rows>;
#endif
static_assert(TransposeLayout<Input, 0, 1>::tensor_rank >= 0);
