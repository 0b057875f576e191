// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: redistribute_async: neither layout may have halos (call redistribute, or refresh_halos)

#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using To = Layout<2, Shard<0, dp, Halo<1>>>;
#else
using To = Layout<2>;
#endif

void start(const ShardedTensor<Layout<2, Shard<0, dp>>>& input) {
  auto pending = redistribute_async<To>(input);
  static_cast<void>(pending.wait());
}
