// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: route: logits must be [tokens, experts], or have more dimensions of tokens before the experts (reshape them)

#include <shardwright/nn/experts/route.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Logits = Layout<1>;
#else
using Logits = Layout<2>;
#endif

void choose(const ShardedTensor<Logits>& logits) { static_cast<void>(choose_experts(logits, {.chosen = 2})); }
