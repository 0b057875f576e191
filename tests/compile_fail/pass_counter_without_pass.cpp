// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: PassCounter: add() must be given the FirstPass, or a replay would count again
// expect: (pass first_pass() of the tape or of a Var on it)

#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/pass_counter.hpp>

#include <array>

using namespace shardwright;

void count(Var<Layout<1>> routed, PassCounter<int>& tokens_per_expert) {
  const std::array<int, 2> amounts{3, 5};
#ifdef SHARDWRIGHT_EXPECT_FAIL
  tokens_per_expert.add(routed, amounts);
#else
  tokens_per_expert.add(routed.first_pass(), amounts);
#endif
}
