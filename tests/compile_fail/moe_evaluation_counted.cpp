// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: ExpertCounts: add() must be given the FirstPass, or evaluations and replays would count, too (pass first_pass() of the tape or of a Var on it)

#include <shardwright/nn/experts/counts.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, dp>>;
void count(ExpertCounts<Tokens>& counts, const Var<Tokens>& logits, const ExpertChoice<Tokens>& choice) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  counts.add(logits, choice);
#else
  counts.add(logits.first_pass(), choice);
#endif
}
