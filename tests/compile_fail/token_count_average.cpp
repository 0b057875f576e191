// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: TokenCount: the parts of ranks must be added, not averaged or compared (use Layout<0, Partial<Sum, axes...>>)

#include <shardwright/train/step/loss.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Over = Layout<0, Partial<Avg, dp>>;
#else
using Over = Layout<0, Partial<Sum, dp>>;
#endif
TokenCount<Over> tokens{4};
