// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: ExpertCounts: the choice must have the layout of the logits that the counts are made for, whose axes are those that split tokens (make the counts for the layout that the router reads)

#include <shardwright/nn/experts/load.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<3, Shard<0, dp>, Shard<1, cp, tp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Counted = Layout<3, Shard<0, dp>, Shard<1, cp>>; // ranks of tp would each have a bias of their own
#else
using Counted = Tokens;
#endif

void count(ExpertLoad<Counted>& load, const Var<Tokens>& logits) {
  load.count(logits.first_pass(), choose_experts(logits.value(), {.chosen = 2}));
}
