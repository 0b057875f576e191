// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: balance_loss: logits must be [sequences, positions, experts], whose layout says which axes split a sequence (reshape them, or take WholeMicrobatch)

#include <shardwright/nn/experts/balance_loss.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, dp, cp>>; // which of them splits sequences?
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Over = EachSequence;
#else
using Over = WholeMicrobatch;
#endif

void balance(const Var<Tokens>& logits, const ExpertChoice<Tokens>& choice) {
  static_cast<void>(balance_loss<Over>(logits, choice));
}
