// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: divide: the divisor must not be Partial, an incomplete sum (redistribute it first)

#include <shardwright/tensor/operators.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<1, Partial<Sum, dp>>;
#else
using L = Layout<1, Shard<0, dp>>;
#endif

auto inverse(const ShardedTensor<L>& x) { return 2.0 / x; }
