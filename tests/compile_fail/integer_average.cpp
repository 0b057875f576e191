// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: ShardedTensor: a Partial<Avg> must have floating-point elements, because an average of integers need not be an integer (use Partial<Sum>)

#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = float;
#endif

void averaged(const DeviceMesh<dp>& mesh) {
  ShardedTensor<Layout<1, Partial<Avg, dp>>, Element> parts(mesh, {4});
}
