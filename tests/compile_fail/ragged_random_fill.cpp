// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Ragged: rows grouped by expert have no place in a whole tensor, which this operation needs
// expect: (use it on tokens, before dispatch() or after combine())

#include <shardwright/tensor/fill.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, ep>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#else
using Rows = Tokens;
#endif

void fill_rows(ShardedTensor<Rows>& rows) { fill_normal(rows, {1, 1}); }
