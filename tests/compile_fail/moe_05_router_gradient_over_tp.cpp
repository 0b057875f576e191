// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Parameter: every use must give its gradient in the parameter's raw layout, but this one gives another

#include <shardwright/nn/experts/route.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/parameter.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<3, Shard<0, dp>, Shard<1, tp>>; // sequences are split over tp, too
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Raw = Layout<2, Partial<Sum, dp>>; // so the gradients of its ranks are parts, which nobody would sum
#else
using Raw = Layout<2, Partial<Sum, dp, tp>>;
#endif

void choose(const Var<Tokens>& x, Parameter<Layout<2>, Raw>& weight) {
  static_cast<void>(route(matmul(x, weight), {.chosen = 2}));
}
