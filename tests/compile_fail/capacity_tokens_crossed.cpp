// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: within_capacity: tokens must be split in their first dimension only, so that a rank's tokens follow those of the ranks before it
// expect: (redistribute the choices, and dispatch in that layout)

#include <shardwright/nn/experts/capacity.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Tokens = Layout<3, Shard<0, dp>, Shard<1, cp>>;
#else
using Tokens = Layout<3, Shard<0, dp, cp>>;
#endif

auto kept(const ShardedTensor<Tokens, std::int32_t>& chosen) { return within_capacity(chosen, 8, 1.25); }
