// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: route: padding must be int32, one number for each token, in the layout of the logits' tokens, TokenLayout<Logits>, and on their target (redistribute it)

#include <shardwright/nn/experts/router.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<3, Shard<0, dp>, Shard<1, cp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Padding = ShardedTensor<Layout<2, Shard<0, dp>>, std::int32_t>; // of whole sequences
#else
using Padding = ShardedTensor<Layout<2, Shard<0, dp>, Shard<1, cp>>, std::int32_t>;
#endif

void choose(Router<Tokens>& router, const Var<Tokens>& x, const Padding& padding) {
  static_cast<void>(router(x, padding));
}
