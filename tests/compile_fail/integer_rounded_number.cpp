// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Operation: a tensor of integers takes only whole numbers, because others would be rounded before they are used (write 2 in place of 2.0, or use floating-point elements)

#include <shardwright/tensor/operators.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr double factor = 1.5;
#else
constexpr int factor = 2;
#endif

auto scaled(const ShardedTensor<Layout<1, Shard<0, dp>>, std::int32_t>& x) { return x * factor; }
