// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: swiglu: the dimension that holds gate and value side by side must not be sharded (shard the last one)

#include <shardwright/nn/layers/swiglu.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using GateUp = Layout<4, Shard<0, dp>, Shard<2, tp>>;
#else
using GateUp = Layout<4, Shard<0, dp>, Shard<3, tp>>;
#endif

void activate(const ShardedTensor<GateUp>& gate_up) { static_cast<void>(swiglu(gate_up)); }
