// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/train/tape.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

namespace reduce_average {
// expect: reduce: an average must be a Sum that is scaled once (take mean, or reduce with Sum and scale by 1 / extent)

void average(const ShardedTensor<Layout<2, Shard<0, dp>>>& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(reduce<Avg, 0>(x)); // an average of averages, where blocks are uneven
#else
  static_cast<void>(mean<0>(x));
#endif
}
} // namespace reduce_average

namespace reduce_dimension {
// expect: reduce: the dimension must be at least 0 and less than the tensor rank (count from 0)

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int dimension = 2;
#else
constexpr int dimension = 1;
#endif

static_assert(ReductionLayout<Sum, dimension, Layout<2>>::tensor_rank >= 0);
} // namespace reduce_dimension

namespace reduce_max_on_tape {
// expect: reduce: there is no gradient of a Product, nor of Max or Min over ranks (redistribute the value, so that the reduced dimensions are not sharded, or reduce the tensor value(), which is not on the tape)

void largest(const Var<Layout<2, Shard<0, dp>>>& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(reduce<Max, 0>(x));
#else
  static_cast<void>(reduce<Max, 0>(x.value()));
  static_cast<void>(reduce<Max, 1>(x));
#endif
}
} // namespace reduce_max_on_tape

namespace reduce_partial_of_another_operation {
// expect: reduce: the input must not be a Partial of another operation
// expect: (redistribute it first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<2, Partial<Sum, tp>>;
#else
using Input = Layout<2, Partial<Max, tp>>;
#endif

static_assert(ReductionLayout<Max, 0, Input>::tensor_rank >= 0);
} // namespace reduce_partial_of_another_operation

namespace ordered_on_tape {
// expect: OrderedSum: the operand must be a tensor, because an ordered sum has no gradient (sum the value(), or use Sum)

void sum(const Var<Layout<2, Shard<0, dp>>>& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(reduce_all<OrderedSum>(x));
#else
  static_cast<void>(reduce_all<OrderedSum>(x.value()));
#endif
}
} // namespace ordered_on_tape

namespace ordered_rows {
// expect: reduce: an OrderedSum must be of all dimensions (use reduce_all, or Sum for the rows of a matrix)

void sum(const ShardedTensor<Layout<2, Shard<0, dp>>>& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(reduce<OrderedSum, 0>(x));
#else
  static_cast<void>(reduce<Sum, 0>(x));
#endif
}
} // namespace ordered_rows

namespace reproducible_sum_of_ranks {
// expect: sum: on a Reproducible target a floating-point sum must not be over a sharded dimension, because each rank adds its own part first, and the parts depend on the mesh (use OrderedSum for all elements, or gather the dimension)

using Rows = ShardedTensor<Layout<2, Shard<0, dp>>, float, Reproducible<DefaultTarget>>;

auto total(const Rows& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return reduce_all<Sum>(x);
#else
  return reduce_all<OrderedSum>(x);
#endif
}
} // namespace reproducible_sum_of_ranks

namespace ordered_integers {
// expect: OrderedSum: the elements must be floating-point (use Sum, which is exact for integers)

void sum(const ShardedTensor<Layout<1, Shard<0, dp>>, std::int64_t>& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(reduce_all<OrderedSum>(x));
#else
  static_cast<void>(reduce_all<Sum>(x));
#endif
}
} // namespace ordered_integers

namespace ordered_of_partial {
// expect: reduce: the input must not be a Partial of another operation (redistribute it first)

void norm(const ShardedTensor<Layout<1, Partial<Sum, dp>>>& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(reduce_all<OrderedSum>(x)); // its parts are rounded already
#else
  static_cast<void>(reduce_all<Sum>(x));
#endif
}
} // namespace ordered_of_partial

namespace ordered_mixed {
// expect: add: two Partials must have the same operation (redistribute them first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<0, Partial<OrderedSum, dp>>;
#else
using Right = Layout<0, Partial<Sum, dp>>;
#endif
static_assert(AddLayout<Layout<0, Partial<Sum, dp>>, Right>::tensor_rank == 0);
} // namespace ordered_mixed

namespace ordered_rounded {
// expect: ShardedTensor: a Partial<OrderedSum> must be one number of ExactSum, which keeps every bit that ranks add, and an ExactSum must be complete or Partial<OrderedSum> (make it by dot<OrderedSum> or reduce_all<OrderedSum>)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Number = double;
#else
using Number = ExactSum;
#endif
static_assert(ShardedTensor<Layout<0, Partial<OrderedSum, dp>>, Number>::tensor_rank == 0);
} // namespace ordered_rounded

namespace ordered_gradient {
// expect: Gradient: an OrderedSum has no gradient layout (use a Partial<Sum> on a tape)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Value = Layout<0, Partial<OrderedSum, dp>>;
#else
using Value = Layout<0, Partial<Sum, dp>>;
#endif
static_assert(Gradient<Value>::tensor_rank == 0);
} // namespace ordered_gradient
