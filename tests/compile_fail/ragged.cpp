// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/ragged.hpp>
#include <shardwright/layout/shape_layout.hpp>
#include <shardwright/layout/transition.hpp>
#include <shardwright/tensor/fill.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, ep>>;

namespace ragged_add {
// expect: Ragged: rows grouped by expert support only grouped products, elementwise functions,
// expect: products of two such tensors, and combine() (combine them first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#else
using Rows = Tokens;
#endif

static_assert(AddLayout<Rows, Rows>::tensor_rank >= 0);
} // namespace ragged_add

namespace ragged_matmul {
// expect: Ragged: rows grouped by expert support only grouped products, elementwise functions,
// expect: products of two such tensors, and combine() (combine them first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#else
using Rows = Tokens;
#endif

static_assert(MatmulLayout<Rows, Layout<2>>::tensor_rank >= 0);
} // namespace ragged_matmul

namespace ragged_other_dispatch {
// expect: Ragged: both operands must come from the same dispatch
// expect: (dispatch what is combined with them in the same way)

using Tokens = Layout<2, Shard<0, dp, ep>>;
using Rows = DispatchLayout<Tokens, AxisList<ep>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Others = DispatchLayout<Tokens, AxisList<dp, ep>>;
#else
using Others = Rows;
#endif

static_assert(MultiplyLayout<Rows, Others>::tensor_rank >= 0);
} // namespace ragged_other_dispatch

namespace ragged_random_fill {
// expect: Ragged: rows grouped by expert have no place in a whole tensor, which this operation needs
// expect: (use it on tokens, before dispatch() or after combine())

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#else
using Rows = Tokens;
#endif

void fill_rows(ShardedTensor<Rows>& rows) { fill_normal(rows, {1, 1}); }
} // namespace ragged_random_fill

namespace ragged_redistributed {
// expect: Ragged: rows grouped by expert can leave their layout only by combine(), and tokens enter it only by dispatch()
// expect: (call these instead)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#else
using Rows = Tokens;
#endif

static_assert(Transition<Rows, Layout<2>>::collectives >= 0);
} // namespace ragged_redistributed

namespace ragged_transposed {
// expect: Ragged: rows grouped by expert support only grouped products, elementwise functions,
// expect: products of two such tensors, and combine() (combine them first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#else
using Rows = Tokens;
#endif

static_assert(TransposeLayout<Rows, 0, 1>::tensor_rank >= 0);
} // namespace ragged_transposed
