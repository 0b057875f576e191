// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: LossSum: the parts of ranks must be added, not averaged or compared (give the sum over this rank's tokens, in Layout<0, Partial<Sum, axes...>>)

#include <shardwright/train/step/loss.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Over = Layout<0, Partial<Avg, dp>>; // the mean of each rank
#else
using Over = Layout<0, Partial<Sum, dp>>;
#endif
LossSum<Over> loss{1.0};
