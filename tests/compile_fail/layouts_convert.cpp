// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: NoImplicitConversionCallRedistributeShareOrClone

#include <shardwright/tensor/sharded_tensor.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = Layout<2, Shard<1, tp>>;
#else
using Given = Layout<2, Shard<0, tp>>;
#endif

void take(ShardedTensor<Layout<2, Shard<0, tp>>, const float> tensor);
void give(const ShardedTensor<Given, const float>& tensor) { take(tensor); }
