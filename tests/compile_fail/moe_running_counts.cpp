// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: stale_balance_loss: the counts must be those of a completed step, as running sums over microbatches depend on their order (pass ExpertLoad::last_step() or what ExpertCounts::finish() returned)

#include <shardwright/nn/experts/balance_loss.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, dp>>;
void balance(const Var<Tokens>& logits, const ExpertChoice<Tokens>& choice, ExpertCounts<Tokens>& of_step,
             const StaleCounts<>& of_last_step) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(of_last_step);
  stale_balance_loss(logits, choice, of_step);
#else
  static_cast<void>(of_step);
  static_cast<void>(stale_balance_loss(logits, choice, of_last_step));
#endif
}
