// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: swiglu: the input must not be Partial, an incomplete sum (redistribute it first)

#include <shardwright/nn/layers/swiglu.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using GateUp = Layout<4, Shard<0, dp>, Partial<Sum, tp>>;
#else
using GateUp = Layout<4, Shard<0, dp>, Shard<3, tp>>;
#endif

void activate(const ShardedTensor<GateUp>& gate_up) { static_cast<void>(swiglu(gate_up)); }
