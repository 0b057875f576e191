// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: reduce: there is no gradient of Max, Min or Product, only of a Sum (reduce the tensor value(), which is not on the tape)

#include <shardwright/tensor/reduce.hpp>
#include <shardwright/train/tape.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void largest(const Var<Layout<2, Shard<0, dp>>>& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(reduce<Max, 0>(x));
#else
  static_cast<void>(reduce<Max, 0>(x.value()));
#endif
}
