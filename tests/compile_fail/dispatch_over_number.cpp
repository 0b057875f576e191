// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: dispatch: its template arguments must be the axes whose ranks own the experts, as in dispatch<ep> (the number of experts belongs in the ExpertSet)

#include <shardwright/nn/experts/dispatch.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, dp, ep>>;

void send(const ShardedTensor<Tokens>& x, const ShardedTensor<Tokens, const std::int32_t>& experts) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  dispatch<8>(x, experts, {8, 64});
#else
  static_cast<void>(dispatch<ep>(x, experts, {8, 64}));
#endif
}
