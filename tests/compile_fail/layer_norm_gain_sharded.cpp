// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: layer_norm: gain and bias must be replicated vectors (declare them as Layout<1>, or redistribute them)

#include <shardwright/nn/layers/layer_norm.hpp>
#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void normalise(const ShardedTensor<Layout<2, Shard<0, dp>>>& x,
               const ShardedTensor<Layout<1, Shard<0, tp>>>& gain) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(layer_norm(x, gain, 1e-5));
#else
  static_cast<void>(layer_norm(x, redistribute<Layout<1>>(gain), 1e-5));
#endif
}
