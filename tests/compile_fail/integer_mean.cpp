// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: mean: the elements must be floating-point, because a mean of integers need not be an integer
// expect: (take the sum, and divide it as a floating-point number)

#include <shardwright/tensor/reduce.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = double;
#endif

auto mean_of_all(const ShardedTensor<Layout<1, Shard<0, dp>>, Element>& x) { return mean(x); }
