// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: attention: on a device the mask must be causal or full, without key lengths (take sw::causal or sw::full, or attend in host memory)

#include <shardwright/nn/attention.hpp>

using namespace shardwright;
using namespace shardwright::axis;

/// Memory that counts as a device's.
struct Elsewhere {
  using execution_space = DefaultTarget::execution_space;
  using memory_space = DefaultTarget::memory_space;
  static constexpr bool host_accessible = false;
  static execution_space make_execution_space() { return DefaultTarget::make_execution_space(); }
  static bool idle(const execution_space&) { return true; }
  static DeviceCommunicator connect(const HostCommunicator&, const execution_space&) { return {}; }
};

void attend(const ShardedTensor<Layout<4, Shard<2, tp>>, float, Elsewhere>& qkv) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(attention(qkv, {.queries = 2, .width = 8}, sliding_window<128>));
#else
  static_cast<void>(attention(qkv, {.queries = 2, .width = 8}, full));
#endif
}
