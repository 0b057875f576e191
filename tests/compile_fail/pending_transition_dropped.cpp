// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: redistribute_async: the transition that it starts must be waited for (keep the PendingTensor, and call wait() once)

#include <shardwright/tensor/redistribute.hpp>

#pragma GCC diagnostic error "-Wunused-result" // as with -Werror

using namespace shardwright;
using namespace shardwright::axis;

ShardedTensor<Layout<2>, const float> reduce(const ShardedTensor<Layout<2, Partial<Sum, dp>>>& gradient) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  redistribute_async<Layout<2>>(gradient);
  return redistribute<Layout<2>>(gradient);
#else
  auto pending = redistribute_async<Layout<2>>(gradient);
  return pending.wait();
#endif
}
