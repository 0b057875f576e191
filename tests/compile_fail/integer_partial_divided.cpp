// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: divide: integers must not be divided while they are Partial, an incomplete sum, because every rank would round its part (redistribute them first)

#include <shardwright/tensor/operators.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<1, Partial<Sum, dp>>;
#else
using L = Layout<1, Shard<0, dp>>;
#endif

auto halved(const ShardedTensor<L, std::int32_t>& x) { return x / 2; }
