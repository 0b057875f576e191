// SPDX-License-Identifier: Apache-2.0
// expect: Ragged: rows grouped by expert support only grouped products, elementwise functions,
// expect: products of two such tensors, and combine() (combine them first)

#include <shardwright/layout/ragged.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, ep>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#else
using Rows = Tokens;
#endif
static_assert(MatmulLayout<Rows, Layout<2>>::tensor_rank >= 0);
