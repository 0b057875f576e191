// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: LossSum: its layout must be that of a scalar (use Layout<0, Partial<Sum, axes...>>)

#include <shardwright/train/step/loss.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Over = Layout<2, Shard<0, dp>>;
#else
using Over = Layout<0, Partial<Sum, dp>>;
#endif
LossSum<Over> loss{1.0};
