// SPDX-License-Identifier: Apache-2.0
// expect: Layout: a placement must be Shard<dimension, axes...>, Replicate<axes...> or Partial<Op,
// expect: axes...> with Op one of Sum, Avg, Product, Max, Min (write it that way)

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Partial<tp>>;
#else
using Placed = Layout<2, Partial<Sum, tp>>;
#endif
static_assert(Placed::tensor_rank == 2);
