// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/layout/shape_layout.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/halos.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/scatter_gather.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Rows = Layout<2, Shard<0, dp, Halo<1>>>;

namespace halo_gather {
// expect: gather: the tensor must have no halos (redistribute it to WithoutHalos of its layout)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = Layout<2, Shard<0, dp, Halo<1>>>;
#else
using Rows = Layout<2, Shard<0, dp>>;
#endif

void collect(const ShardedTensor<Rows>& tensor) { static_cast<void>(gather(tensor, 0)); }
} // namespace halo_gather

namespace halo_gradient {
// expect: Gradient: a layout with halos has no gradient layout, as the gradients of copies belong to their owners
// expect: (call add_halos on the tensor of gradients, and use the layout without halos on the tape)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Value = Rows;
#else
using Value = WithoutHalos<Rows>;
#endif

static_assert(Gradient<Value>::tensor_rank >= 0);
} // namespace halo_gradient

namespace halo_matmul {
// expect: Halo: this operation has no meaning on copies of the neighbours' elements
// expect: (redistribute its operands to WithoutHalos of their layouts)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Left = Rows;
#else
using Left = WithoutHalos<Rows>;
#endif

static_assert(MatmulLayout<Left, Layout<2>>::tensor_rank >= 0);
} // namespace halo_matmul

namespace halo_not_last {
// expect: Shard: a Halo must be the last argument, after the axes (write Shard<0, x, Halo<1>>)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, Halo<1>, dp>>;
#else
using Placed = Layout<2, Shard<0, dp, Halo<1>>>;
#endif

static_assert(Placed::tensor_rank == 2);
} // namespace halo_not_last

namespace halo_of_partial {
// expect: Layout: a layout with a Halo must not be Partial, as halos would copy incomplete sums
// expect: (complete the sum first, then ask for the Halo)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, dp, Halo<1>>, Partial<Sum, tp>>;
#else
using Placed = Layout<2, Shard<0, dp>, Partial<Sum, tp>>;
#endif

static_assert(Placed::tensor_rank == 2);
} // namespace halo_of_partial

namespace halo_random_fill {
// expect: random fill: the tensor must have no halos (fill one without, and redistribute it)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = Layout<2, Shard<0, dp, Halo<1>>>;
#else
using Rows = Layout<2, Shard<0, dp>>;
#endif

void start(ShardedTensor<Rows>& tensor) { fill_uniform(tensor, {.seed = 1, .tensor = 0}); }
} // namespace halo_random_fill

namespace halo_redistribute_async {
// expect: redistribute_async: neither layout may have halos (call redistribute, or refresh_halos)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<2, Shard<0, dp, Halo<1>>>;
#else
using To = Layout<2>;
#endif

void start(const ShardedTensor<Layout<2, Shard<0, dp>>>& input) {
  auto pending = redistribute_async<To>(input);
  static_cast<void>(pending.wait());
}
} // namespace halo_redistribute_async

namespace halo_refresh_without {
// expect: Halo: the layout of the tensor must have halos (name one in its Shard: Shard<0, x, Halo<1>>, and redistribute to it)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = Layout<2, Shard<0, dp>>;
#else
using Rows = Layout<2, Shard<0, dp, Halo<1>>>;
#endif

void refresh(ShardedTensor<Rows>& tensor) { refresh_halos(tensor); }
} // namespace halo_refresh_without

namespace halo_transposed {
// expect: transpose, reshape: the input must not carry halos (redistribute it to WithoutHalos of its layout)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Rows;
#else
using Input = WithoutHalos<Rows>;
#endif

static_assert(TransposeLayout<Input, 0, 1>::tensor_rank >= 0);
} // namespace halo_transposed

namespace halo_twice {
// expect: Layout: a dimension may have one Halo (put all its axes into one Shard)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, dp, Halo<1>>, Shard<0, tp, Halo<1>>>;
#else
using Placed = Layout<2, Shard<0, dp, tp, Halo<1>>>;
#endif

static_assert(Placed::tensor_rank == 2);
} // namespace halo_twice

namespace halo_width {
// expect: Halo: the widths must be at least 0, at most 16383 and not both 0 (leave the Halo out for none)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<2, Shard<0, dp, Halo<1, -1>>>;
#else
using Placed = Layout<2, Shard<0, dp, Halo<1, 0>>>;
#endif

static_assert(Placed::tensor_rank == 2);
} // namespace halo_width

namespace halos_differ {
// expect: add: both operands must carry the same halos (redistribute one of them)

using Left = Layout<2, Shard<0, dp, Halo<1>>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2, Shard<0, dp>>;
#else
using Right = Left;
#endif

static_assert(AddLayout<Left, Right>::tensor_rank >= 0);
} // namespace halos_differ
