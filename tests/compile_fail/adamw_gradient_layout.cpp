// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Optimizer: the optimizer state must have the layout of the gradient (redistribute the gradient to the parameter's gradient_layout, or choose the Zero type that shards both alike)

#include <shardwright/train/optimizer/adamw.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Weight = Parameter<Layout<2, Shard<1, tp>>, Layout<2, Shard<1, tp>, Partial<Sum, dp>>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = Layout<2, Shard<0, tp>>;
#else
using Given = Layout<2, Shard<1, tp>>;
#endif

void step(AdamW& optimizer, Weight& weight, const ShardedTensor<Given>& gradient) {
  optimizer.update(weight, gradient, optimizer.begin(GradientScale(1), 1e-3));
}
