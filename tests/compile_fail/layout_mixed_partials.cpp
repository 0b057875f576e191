// SPDX-License-Identifier: Apache-2.0
// expect: Layout: Partials of different operations must not be combined, unless they are Sum and Avg
// expect: (reduce one of them first)

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<1, Partial<Sum, dp>, Partial<Max, tp>>;
#else
using Placed = Layout<1, Partial<Sum, dp>, Partial<Avg, tp>>;
#endif
static_assert(Placed::tensor_rank == 1);
