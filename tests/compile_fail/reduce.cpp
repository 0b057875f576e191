// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/train/tape.hpp>

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
