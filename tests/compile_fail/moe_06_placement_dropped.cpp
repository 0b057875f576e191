// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Parameter: every use must give its gradient in the parameter's raw layout, but this one gives another

#include <shardwright/nn/experts/dispatch.hpp>
#include <shardwright/tensor/experts/grouped_product.hpp>
#include <shardwright/train/tape/parameter_operand.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Rows = DispatchLayout<Layout<2, Shard<0, dp, ep>>, AxisList<ep>>;
using Weights = Layout<3, Shard<0, ep>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL // as if the gradient were whole on each rank of dp, which saw other tokens
using Raw = Layout<3, Shard<0, ep>>;
#else
using Raw = Layout<3, Shard<0, ep>, Partial<Sum, dp>>;
#endif

auto product(const Var<Rows>& rows, Parameter<Weights, Raw>& weights) { return grouped(rows, weights); }
