// SPDX-License-Identifier: Apache-2.0
// expect: PassCounter: add() must be told the pass that it is in, or a replay would count again
// expect: (hand over the FirstPass, Replay or Evaluation that the block was given)

#include <shardwright/train/pass_counter.hpp>

#include <array>

using namespace shardwright;

template <ForwardPass Pass>
void count(Pass pass, PassCounter<int>& tokens_per_expert) {
  const std::array<int, 2> amounts{3, 5};
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(pass);
  tokens_per_expert.add(amounts);
#else
  tokens_per_expert.add(pass, amounts);
#endif
}

void block(PassCounter<int>& tokens_per_expert) { count(FirstPass{}, tokens_per_expert); }
