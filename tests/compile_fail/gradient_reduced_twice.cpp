// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Parameter: a gradient must be reduced once, but this one is not Partial where the raw gradient is (add what propagation gives, before any redistribute)

#include <shardwright/train/parameter.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Weight = Parameter<Layout<2>, Layout<2, Partial<Sum, dp>>, float, Zero2>;

void add(Weight& weight, const ShardedTensor<Layout<2, Partial<Sum, dp>>>& raw) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  weight.add_gradient(redistribute<Layout<2>>(raw)); // an all_reduce, and end_pass reduces again
#else
  weight.add_gradient(raw);
#endif
}
