// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Operation: the elements must be floating-point, because the results of integers would be rounded (use a tensor of floats)
// expect: operation::Sqrt

#include <shardwright/tensor/elementwise/functions.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = float;
#endif

auto root(const ShardedTensor<Layout<1, Shard<0, dp>>, Element>& x) { return sqrt(x); }
