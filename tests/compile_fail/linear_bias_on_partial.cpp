// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: BiasedLinear: the bias must be added to a complete product, as each rank of a Partial one would add it (name the layout to which the product is redistributed first, such as the stream's)

#include <shardwright/nn/layers/linear.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Stream = Layout<2, Shard<0, dp>>;
using Hidden = Layout<2, Shard<0, dp>, Shard<1, tp>>;
using Row = Layout<2, Shard<0, tp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Down = BiasedLinear<Hidden, Row>; // its product is Partial over tp
#else
using Down = BiasedLinear<Hidden, Row, ModelPlan<>, Stream>;
#endif

void project(const Var<Hidden>& x, Down& down) { static_cast<void>(down(x)); }
