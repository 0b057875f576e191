// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: CountedLoss: a sum of losses must not be scaled, as its gradient is on the tape already and one division by the tokens of the global batch follows (pass the coefficient to the loss)

#include <shardwright/nn/experts/balance_loss.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, dp, tp>>;
auto balance(const Var<Tokens>& logits, const ExpertChoice<Tokens>& choice, double tokens) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return balance_loss<WholeMicrobatch>(logits, choice) * tokens; // has that factor already
#else
  static_cast<void>(tokens);
  return balance_loss<WholeMicrobatch>(logits, choice, {.coefficient = 0.01});
#endif
}
