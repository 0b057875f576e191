// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Operation: a tensor of integers takes only whole numbers

#include <shardwright/tensor/fill.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr float value = 2.7F;
#else
constexpr std::int64_t value = 2;
#endif

void set(ShardedTensor<Layout<1, Shard<0, dp>>, std::int32_t>& x) { fill(x, value); }
