// SPDX-License-Identifier: Apache-2.0
// expect: Layout: a layout with a Halo must not be Partial, as halos would copy incomplete sums
// expect: (complete the sum first, then ask for the Halo)

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, dp, Halo<1>>, Partial<Sum, tp>>;
#else
using Placed = Layout<2, Shard<0, dp>, Partial<Sum, tp>>;
#endif
static_assert(Placed::tensor_rank == 2);
