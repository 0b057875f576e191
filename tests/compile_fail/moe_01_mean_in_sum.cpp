// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: CountedLoss: a sum of losses may be added only to one over the same axes, never to a mean, a plain number or a sum over other axes (add the sum that a loss returns, and leave the division to GradAccumulator)

#include <shardwright/nn/experts/balance_loss.hpp>

using namespace shardwright;
using namespace shardwright::axis;

// Loss of the tokens and, say, of further tokens predicted, each divided by its own count: not their mean.
using Tokens = Layout<0, Partial<Sum, dp, cp>>;
void join(CountedLoss<Tokens>& loss, CountedLoss<Tokens> balance) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  loss += MeanLoss{balance.loss.value / 3};
#else
  loss += balance;
#endif
}
