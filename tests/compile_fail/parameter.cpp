// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/operation_node.hpp>
#include <shardwright/train/tape/parameter_operand.hpp>

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

namespace parameter_reproducible_double {
// expect: Parameter: on a Reproducible target the elements must be float or bfloat16, because the sums of gradients have the range and the units of these (choose one of them, or a target that is not Reproducible)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = double;
#else
using Element = bfloat16;
#endif

using Weight =
    Parameter<Layout<2>, Layout<2, Partial<Sum, dp>>, Element, DataParallel, Reproducible<DefaultTarget>>;

static_assert(sizeof(Weight) != 0);
} // namespace parameter_reproducible_double

namespace parameter_reproducible_mixed {
// expect: Operation: both tensors must be on the same target

using Rows = Layout<2, Shard<0, dp>>;
using Ordered = Reproducible<DefaultTarget>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Target = DefaultTarget; // its gradient would be an unordered sum
#else
using Target = Ordered;
#endif

using Weight = Parameter<Layout<2>, Layout<2, Partial<Sum, dp>>, float, DataParallel, Target>;

void project(const Var<Rows, float, Ordered>& x, Weight& weight) { static_cast<void>(matmul(x, weight)); }
} // namespace parameter_reproducible_mixed

namespace parameter_reproducible_summed {
// expect: Parameter: on a Reproducible target an operation must add its gradient term by term to the parameter's sum, but this one gives floats that are already summed (add FixedPoint terms to the slot, or choose a target that is not Reproducible)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Target = Reproducible<DefaultTarget>;
#else
using Target = DefaultTarget;
#endif

using Raw = Layout<1, Partial<Sum, dp>>;
using Gain = Parameter<Layout<1>, Raw, float, DataParallel, Target>;

void give(const detail::ParameterOperand<Gain>& gain, const ShardedTensor<Raw, float, Target>& sum) {
  gain.give(sum);
}
} // namespace parameter_reproducible_summed
