// SPDX-License-Identifier: Apache-2.0
// expect: Layout: a placement must name at least one axis (leave it out to replicate)

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0>>;
#else
using Placed = Layout<2>;
#endif
static_assert(Placed::tensor_rank == 2);
