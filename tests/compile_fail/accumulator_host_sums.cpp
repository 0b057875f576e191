// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: GradAccumulator: the sums of a model on a device must be passed on unchanged, in device memory (call add(sums) with what the model returned)
#include <shardwright/train/grad_accumulator.hpp>

using namespace shardwright;
using axis::dp;
using OverDp = Layout<0, Partial<Sum, dp>>;

/// Memory that counts as a device's.
struct Elsewhere {
  using execution_space = DefaultTarget::execution_space;
  using memory_space = DefaultTarget::memory_space;
  static constexpr bool host_accessible = false;
  static execution_space make_execution_space() { return DefaultTarget::make_execution_space(); }
  static bool idle(const execution_space&) { return true; }
  static DeviceCommunicator connect(const HostCommunicator&, const execution_space&) { return {}; }
};

struct Model {
  using target = Elsewhere;
  template <class Visitor> void for_each_parameter(Visitor&&) {}
};

void step(GradAccumulator<Model>& accumulator, const DeviceLoss<OverDp, Elsewhere>& sums) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  accumulator.add(sums.read().loss, sums.read().tokens);
#else
  accumulator.add(sums);
#endif
}
