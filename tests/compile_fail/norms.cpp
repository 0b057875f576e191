// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/nn/layers/swiglu.hpp>
#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace layer_norm_gain_sharded {
// expect: norm: gain and bias must be replicated vectors (declare them as Layout<1>, or redistribute them)

void normalise(const ShardedTensor<Layout<2, Shard<0, dp>>>& x,
               const ShardedTensor<Layout<1, Shard<0, tp>>>& gain) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(layer_norm(x, gain, 1e-5));
#else
  static_cast<void>(layer_norm(x, redistribute<Layout<1>>(gain), 1e-5));
#endif
}
} // namespace layer_norm_gain_sharded

namespace rms_norm_gain_sharded {
// expect: norm: gain and bias must be replicated vectors (declare them as Layout<1>, or redistribute them)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Gain = Layout<1, Shard<0, tp>>;
#else
using Gain = Layout<1>;
#endif

void norm(const ShardedTensor<Layout<2, Shard<0, dp>>>& input, const ShardedTensor<Gain>& gain) {
  static_cast<void>(rms_norm(input, gain, 1e-5));
}
} // namespace rms_norm_gain_sharded

namespace rms_norm_partial {
// expect: rms_norm: the input must not be Partial, an incomplete sum (redistribute it first)
// expect: tp

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<3, Shard<0, dp>, Partial<Sum, tp>>;
#else
using Input = Layout<3, Shard<0, dp>>;
#endif

void norm(const ShardedTensor<Input>& input, const ShardedTensor<Layout<1>>& gain) {
  static_cast<void>(rms_norm(input, gain, 1e-5));
}
} // namespace rms_norm_partial

namespace rms_norm_width_sharded {
// expect: rms_norm: the last dimension must not be sharded (redistribute the input to gather it)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<3, Shard<0, dp>, Shard<2, tp>>;
#else
using Input = Layout<3, Shard<0, dp>, Shard<1, tp>>;
#endif

void norm(const ShardedTensor<Input>& input, const ShardedTensor<Layout<1>>& gain) {
  static_cast<void>(rms_norm(input, gain, 1e-5));
}
} // namespace rms_norm_width_sharded

namespace rowwise_sharded_row {
// expect: rms_norm: the last dimension must not be sharded (redistribute the input to gather it)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<2, Shard<1, tp>>;
#else
using Input = Layout<2, Shard<0, tp>>;
#endif

static_assert(RowwiseLayout<operation::rms_norm, Input>::tensor_rank >= 0);
} // namespace rowwise_sharded_row

namespace swiglu_pair_sharded {
// expect: swiglu: the dimension that holds gate and value side by side must not be sharded (shard the last one)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using GateUp = Layout<4, Shard<0, dp>, Shard<2, tp>>;
#else
using GateUp = Layout<4, Shard<0, dp>, Shard<3, tp>>;
#endif

void activate(const ShardedTensor<GateUp>& gate_up) { static_cast<void>(swiglu(gate_up)); }
} // namespace swiglu_pair_sharded

namespace swiglu_partial {
// expect: swiglu: the input must not be Partial, an incomplete sum (redistribute it first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using GateUp = Layout<4, Shard<0, dp>, Partial<Sum, tp>>;
#else
using GateUp = Layout<4, Shard<0, dp>, Shard<3, tp>>;
#endif

void activate(const ShardedTensor<GateUp>& gate_up) { static_cast<void>(swiglu(gate_up)); }
} // namespace swiglu_partial
