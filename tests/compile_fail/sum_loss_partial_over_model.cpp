// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: sum_loss: the loss must be Partial over each axis that shards the tokens, and over no other (read it with .as<L>() of the TokenCount's layout, which reduces over the axes of the model)

#include <shardwright/train/tape/sum_loss.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using PerToken = Layout<0, Partial<Sum, dp>>;

void finish(const Var<Layout<0, Partial<Sum, dp, tp>>>& loss, TokenCount<PerToken> tokens) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(sum_loss(loss, tokens)); // every rank of tp has a part of it
#else
  static_cast<void>(sum_loss(loss.as<PerToken>(), tokens));
#endif
}
