// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Operation: a tensor of integers takes only whole numbers

#include <shardwright/tensor/operators.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr double divisor = 2.0;
#else
constexpr int divisor = 2;
#endif

auto halved(const ShardedTensor<Layout<1, Shard<0, dp>>, std::int32_t>& x) { return x / divisor; }
