// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: sum_loss: the loss must be one number (reduce it with sum)

#include <shardwright/tensor/reduce.hpp>
#include <shardwright/train/tape/sum_loss.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using PerToken = Layout<0, Partial<Sum, dp>>;

void finish(const Var<Layout<1, Shard<0, dp>>>& losses, TokenCount<PerToken> tokens) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(sum_loss(losses, tokens));
#else
  static_cast<void>(sum_loss(sum(losses), tokens));
#endif
}
