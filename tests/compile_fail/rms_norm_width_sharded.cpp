// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: rms_norm: the last dimension must not be sharded (redistribute the input to gather it)

#include <shardwright/nn/layers/rms_norm.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<3, Shard<0, dp>, Shard<2, tp>>;
#else
using Input = Layout<3, Shard<0, dp>, Shard<1, tp>>;
#endif

void norm(const ShardedTensor<Input>& input, const ShardedTensor<Layout<1>>& gain) {
  static_cast<void>(rms_norm(input, gain, 1e-5));
}
