// SPDX-License-Identifier: Apache-2.0

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace layout_axis_twice {
// expect: Layout: an axis may be named only once (it shards one dimension, or is Partial, or is replicated)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, dp>, Shard<1, dp>>;
#else
using Placed = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#endif

static_assert(Placed::tensor_rank == 2);
} // namespace layout_axis_twice

namespace layout_dimension_out_of_range {
// expect: Shard: the dimension must be at least 0 and less than the tensor rank (count dimensions from 0)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<2, dp>>;
#else
using Placed = Layout<2, Shard<1, dp>>;
#endif

static_assert(Placed::tensor_rank == 2);
} // namespace layout_dimension_out_of_range

namespace layout_empty_placement {
// expect: Layout: a placement must name at least one axis (leave it out to replicate)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0>>;
#else
using Placed = Layout<2>;
#endif

static_assert(Placed::tensor_rank == 2);
} // namespace layout_empty_placement

namespace layout_mixed_partials {
// expect: Layout: Partials of different operations must not be combined, unless they are Sum and Avg
// expect: (reduce one of them first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<1, Partial<Sum, dp>, Partial<Max, tp>>;
#else
using Placed = Layout<1, Partial<Sum, dp>, Partial<Avg, tp>>;
#endif

static_assert(Placed::tensor_rank == 1);
} // namespace layout_mixed_partials

namespace layout_not_an_axis {
// expect: Layout: a placement's arguments must be axis tags
// expect: (derive the tag from axis_tag and give it a name)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, int>>;
#else
using Placed = Layout<2, Shard<0, dp>>;
#endif

static_assert(Placed::tensor_rank == 2);
} // namespace layout_not_an_axis

namespace layout_partial_without_operation {
// expect: Layout: a placement must be Shard<dimension, axes...>, Replicate<axes...> or Partial<Op,
// expect: axes...> with Op one of Sum, Avg, Product, Max, Min, OrderedSum (write it that way)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Partial<tp>>;
#else
using Placed = Layout<2, Partial<Sum, tp>>;
#endif

static_assert(Placed::tensor_rank == 2);
} // namespace layout_partial_without_operation

namespace layout_tensor_rank {
// expect: Layout: the tensor rank must be between 0 and 6 (merge dimensions)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<7>;
#else
using Placed = Layout<6>;
#endif

static_assert(Placed::tensor_rank <= 6);
} // namespace layout_tensor_rank
