// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: padded: the key lengths must be int32 (convert them first)

#include <shardwright/nn/attention.hpp>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Length = std::int64_t;
#else
using Length = std::int32_t;
#endif

auto mask(const ShardedTensor<Layout<1>, Length>& lengths) { return padded(causal, lengths); }
