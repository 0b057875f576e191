// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: add: a number must not be added to a Partial, an incomplete sum, because every rank's part would count it (redistribute the Partial first)

#include <shardwright/tensor/operators.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<1, Partial<Sum, dp>>;
#else
using L = Layout<1, Shard<0, dp>>;
#endif

auto shifted(const ShardedTensor<L>& x) { return x + 1.0; }
