// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: reduce: an average must be a Sum that is scaled once (take mean, or reduce with Sum and scale by 1 / extent)

#include <shardwright/tensor/reduce.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void average(const ShardedTensor<Layout<2, Shard<0, dp>>>& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(reduce<Avg, 0>(x)); // an average of averages, where blocks are uneven
#else
  static_cast<void>(mean<0>(x));
#endif
}
