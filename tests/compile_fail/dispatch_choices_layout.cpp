// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: dispatch: the experts must be chosen in the layout in which the tokens are read
// expect: (redistribute the choices, or read the tokens in their layout)

#include <shardwright/nn/experts/dispatch.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, dp, ep>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Choices = Layout<2, Shard<0, ep, dp>>;
#else
using Choices = Tokens;
#endif

auto send(const ShardedTensor<Tokens>& x, const ShardedTensor<Choices, std::int32_t>& experts) {
  return dispatch<ep>(x, experts, {.experts = 8, .most_rows = 64});
}
