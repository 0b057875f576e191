// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/elementwise/functions.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace add_layouts_differ {
// expect: add: both operands must be sharded alike (redistribute one of them)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2, Shard<1, tp>>;
#else
using Right = Layout<2, Shard<0, tp>>;
#endif

static_assert(AddLayout<Layout<2, Shard<0, tp>>, Right>::tensor_rank >= 0);
} // namespace add_layouts_differ

namespace add_partial_to_finished {
// expect: add: an incomplete sum (Partial) cannot be added to a complete value
// expect: (redistribute the Partial first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2>;
#else
using Right = Layout<2, Partial<Sum, tp>>;
#endif

static_assert(AddLayout<Layout<2, Partial<Sum, tp>>, Right>::tensor_rank >= 0);
} // namespace add_partial_to_finished

namespace axpy_layouts_differ {
// expect: axpy: both tensors must have the same layout (redistribute x)

void step(const ShardedTensor<Layout<1>>& x, ShardedTensor<Layout<1, Shard<0, dp>>>& y) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  axpy(-0.1, x, y);
#else
  axpy(-0.1, redistribute<Layout<1, Shard<0, dp>>>(x), y);
#endif
}
} // namespace axpy_layouts_differ

namespace multiply_partial_by_partial {
// expect: multiply: Partial times Partial is not defined (redistribute one operand first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2, Partial<Sum, tp>>;
#else
using Right = Layout<2>;
#endif

static_assert(MultiplyLayout<Layout<2, Partial<Sum, tp>>, Right>::tensor_rank >= 0);
} // namespace multiply_partial_by_partial

namespace narrow_element_mixed {
// expect: Operation: both tensors must have the same element type (convert one first)

void add_to_main(const ShardedTensor<Layout<2>>& main, const ShardedTensor<Layout<2>, bfloat16>& narrow) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  const auto sum = add(main, narrow);
#else
  const auto sum = add(main, convert<float>(narrow));
#endif
  static_cast<void>(sum);
}
} // namespace narrow_element_mixed

namespace nonlinear_partial {
// expect: elementwise function: the input must not be Partial, an incomplete sum (redistribute it first)
// expect: GeluTanh
// expect: tp

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<2, Shard<0, dp>, Partial<Sum, tp>>;
#else
using Input = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#endif

// The second function is silent: only the first one is wrong.
auto activated(const ShardedTensor<Input>& x) { return square(gelu_tanh(x)); }
} // namespace nonlinear_partial

namespace number_added_to_partial {
// expect: add: a number must not be added to a Partial, an incomplete sum, because every rank's part would count it (redistribute the Partial first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<1, Partial<Sum, dp>>;
#else
using L = Layout<1, Shard<0, dp>>;
#endif

auto shifted(const ShardedTensor<L>& x) { return x + 1.0; }
} // namespace number_added_to_partial

namespace number_over_partial {
// expect: divide: the divisor must not be Partial, an incomplete sum (redistribute it first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<1, Partial<Sum, dp>>;
#else
using L = Layout<1, Shard<0, dp>>;
#endif

auto inverse(const ShardedTensor<L>& x) { return 2.0 / x; }
} // namespace number_over_partial

namespace per_rank_on_replicated {
// expect: PerRank: the tensor must be split over the axis along which the number differs, but it is replicated or Partial there (give all its ranks one number, or redistribute the tensor)
// expect: dp

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<1, Shard<0, tp>>;
#else
using L = Layout<1, Shard<0, dp>>;
#endif

auto weighted(const DeviceMesh<dp, tp>& mesh, const ShardedTensor<L>& x) {
  return x * PerRank<dp>(1 + mesh.coordinate<dp>());
}
} // namespace per_rank_on_replicated

namespace reproducible_axpy_of_parts {
// expect: Operation: on a Reproducible target no operand may be Partial

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Sums = Layout<1, Partial<Sum, dp>>;
#else
using Sums = Layout<1>;
#endif
using Vector = ShardedTensor<Sums, float, Reproducible<DefaultTarget>>;

void step(const Vector& x, Vector& y) { axpy(-0.1, x, y); }
} // namespace reproducible_axpy_of_parts

namespace reproducible_scale_of_parts {
// expect: Operation: on a Reproducible target no operand may be Partial, because each rank would round its part of the result, and the parts depend on the mesh (redistribute the operand first)

void scale_parts(const ShardedTensor<Layout<1, Partial<Sum, dp>>, float, Reproducible<DefaultTarget>>& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(scale(x, 0.3F));
#else
  static_cast<void>(scale(redistribute<Layout<1>>(x), 0.3F));
#endif
}
} // namespace reproducible_scale_of_parts

namespace reproducible_sum_of_parts {
// expect: Operation: on a Reproducible target no operand may be Partial

using Sums = ShardedTensor<Layout<1, Partial<Sum, dp>>, float, Reproducible<DefaultTarget>>;

void add_parts(const Sums& x, const Sums& y) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(add(x, y));
#else
  static_cast<void>(add(redistribute<Layout<1>>(x), redistribute<Layout<1>>(y)));
#endif
}
} // namespace reproducible_sum_of_parts
