// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Parameter: the elements must be floating-point, because a weight has a gradient (keep integers in a ShardedTensor)

#include <shardwright/train/parameter.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = float;
#endif

void make(const DeviceMesh<dp>& mesh) {
  const Parameter<Layout<1>, Layout<1, Partial<Sum, dp>>, Element> table(mesh, {4}, Initial::normal(0.02));
}
