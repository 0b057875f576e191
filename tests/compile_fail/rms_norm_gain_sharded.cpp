// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: rms_norm: the gain must be a replicated vector (declare it as Layout<1>, or redistribute it)

#include <shardwright/nn/layers/rms_norm.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Gain = Layout<1, Shard<0, tp>>;
#else
using Gain = Layout<1>;
#endif

void norm(const ShardedTensor<Layout<2, Shard<0, dp>>>& input, const ShardedTensor<Gain>& gain) {
  static_cast<void>(rms_norm(input, gain, 1e-5));
}
