// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/operation_node.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace parameter_accumulator_layout {
// expect: Parameter: the accumulator must have the layout of the raw gradient, or that of the optimizer state as far as the gradient is reduced (use ReducedGradient<Raw, State, axes>)

struct Sharding : Zero2 {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  template <LayoutType, LayoutType>
  using Accumulator = Layout<2, Shard<1, dp>>; // the optimizer state is sharded over dimension 0
#endif
};

using Weight = Parameter<Layout<2>, Layout<2, Partial<Sum, dp>>, float, Sharding>;

static_assert(sizeof(Weight) != 0);
} // namespace parameter_accumulator_layout

namespace parameter_extents {
// expect: Shape: there must be one extent for each dimension of the layout
// expect: ExtentsOf

void make(const DeviceMesh<dp>& mesh) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  const Linear<Layout<2, Shard<0, dp>>, Layout<2>> product(mesh, {4}, Initial::normal(0.02));
#else
  const Linear<Layout<2, Shard<0, dp>>, Layout<2>> product(mesh, {4, 8}, Initial::normal(0.02));
#endif
}
} // namespace parameter_extents

namespace parameter_raw_layout {
// expect: Parameter: every use must give its gradient in the parameter's raw layout, but this one gives another (use a separate parameter, or read both operands in the layouts of the first use)

using Rows = Layout<2, Shard<0, dp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Raw = Layout<2>; // the sum over dp has yet to be made
#else
using Raw = Layout<2, Partial<Sum, dp>>;
#endif

void project(const Var<Rows>& x, Parameter<Layout<2>, Raw>& weight) { static_cast<void>(matmul(x, weight)); }
} // namespace parameter_raw_layout

namespace parameter_raw_layout_table {
// expect: Parameter: every use must give its gradient in the parameter's raw layout, but this one gives another

using Ids = Layout<2, Shard<0, dp>>;
using Table = Layout<2, Shard<0, tp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Raw = Layout<2, Shard<0, tp>>; // ranks of dp have met other words
#else
using Raw = Layout<2, Shard<0, tp>, Partial<Sum, dp>>;
#endif

void look_up(Tape<>& tape, const ShardedTensor<Ids, std::int32_t>& ids, Parameter<Table, Raw>& table) {
  static_cast<void>(embed(tape, ids, table));
}
} // namespace parameter_raw_layout_table
