// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/shape_layout.hpp>
#include <shardwright/tensor/elementwise/choices.hpp>
#include <shardwright/tensor/insert_columns.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reshape.hpp>
#include <shardwright/tensor/slice.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace insert_columns_split {
// expect: insert_columns: neither operand may be Partial, and both must have whole rows and be split alike, except for the second-to-last dimension, which the columns may lack (redistribute one of them)

using Heads = Layout<4, Shard<0, dp>, Shard<2, tp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Shared = Layout<3, Shard<0, dp>, Shard<1, tp>>; // a stream that is split over tp, too
#else
using Shared = Layout<3, Shard<0, dp>>;
#endif

void join(const ShardedTensor<Heads>& keys, const ShardedTensor<Shared>& rotary_keys) {
  static_cast<void>(insert_columns(keys, rotary_keys, 4));
}
} // namespace insert_columns_split

namespace slice_sharded {
// expect: slice, concat: the dimension must not be sharded, and there must be no halos, since each rank has other indices of it (redistribute the tensor, so that another dimension is sharded)

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int dimension = 1;
#else
constexpr int dimension = 0;
#endif

void first_half(const ShardedTensor<Layout<2, Shard<1, tp>>>& x) {
  static_cast<void>(slice<dimension>(x, 0, x.shape()[dimension] / 2));
}
} // namespace slice_sharded

namespace concat_layouts {
// expect: concat: both tensors must have one layout (redistribute one of them)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Other = Layout<2>;
#else
using Other = Layout<2, Shard<0, dp>>;
#endif

void join(const ShardedTensor<Layout<2, Shard<0, dp>>>& x, const ShardedTensor<Other>& y) {
  static_cast<void>(concat<1>(x, y));
}
} // namespace concat_layouts

namespace where_mask_partial {
// expect: where: both operands must have one layout, and the mask must have it, too, but replicated where they are Partial (redistribute one of them)

using Sums = Layout<2, Partial<Sum, tp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Mask = Sums;
#else
using Mask = Layout<2>;
#endif

void choose(const ShardedTensor<Mask, std::int32_t>& mask, const ShardedTensor<Sums>& x,
            const ShardedTensor<Sums>& y) {
  static_cast<void>(where(mask, x, y));
}
} // namespace where_mask_partial

namespace reshape_cuts_shard {
// expect: reshape: of the dimensions that are regrouped only the first may be sharded (redistribute the input, or merge and split dimensions that are not)

void split(const ShardedTensor<Layout<2, Shard<1, tp>>>& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(reshape(x, {6, 2, 4})); // the blocks of dimension 1 are no blocks of what it becomes
#else
  static_cast<void>(reshape(redistribute<Layout<2, Shard<0, tp>>>(x), {6, 2, 4}));
#endif
}
} // namespace reshape_cuts_shard

namespace reshape_dimensions {
// expect: reshape: the result must have at most 6 dimensions (merge some)

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int parts = 7;
#else
constexpr int parts = 6;
#endif

static_assert(RegroupLayout<Layout<1, Shard<0, dp>>, 0, 1, parts>::tensor_rank >= 0);
} // namespace reshape_dimensions

namespace transpose_dimension {
// expect: transpose: both dimensions must be at least 0 and less than the tensor rank (count from 0)

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int first = 2;
#else
constexpr int first = 0;
#endif

static_assert(TransposeLayout<Layout<2, Shard<0, dp>>, first, 1>::tensor_rank >= 0);
} // namespace transpose_dimension
