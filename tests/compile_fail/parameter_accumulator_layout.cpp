// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Parameter: the accumulator must have the layout of the raw gradient, or that of the optimizer state as far as the gradient is reduced (use ReducedGradient<Raw, State, axes>)

#include <shardwright/train/parameter.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct Sharding : Zero2 {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  template <LayoutType, LayoutType>
  using Accumulator = Layout<2, Shard<1, dp>>; // the optimizer state is sharded over dimension 0
#endif
};

using Weight = Parameter<Layout<2>, Layout<2, Partial<Sum, dp>>, float, Sharding>;
static_assert(sizeof(Weight) != 0);
