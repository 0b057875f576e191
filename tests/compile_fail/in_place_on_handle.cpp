// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: ShardedTensor: a read-only handle must not be written (write into the tensor that owns the memory, or into a clone)

#include <shardwright/tensor/elementwise.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = const float;
#else
using Element = float;
#endif

void halve(ShardedTensor<Layout<2, Shard<0, dp>>, Element>& tensor) { scale_in_place(tensor, 0.5); }
