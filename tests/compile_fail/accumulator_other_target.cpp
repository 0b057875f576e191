// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: GradAccumulator: the model must name the target of its parameters (add `using target = ...` to it)

#include <shardwright/train/grad_accumulator.hpp>

using namespace shardwright;
using axis::dp;

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
#ifndef SHARDWRIGHT_EXPECT_FAIL
  using target = Elsewhere;
#endif
  Parameter<Layout<1>, Layout<1>, float, DataParallel, Elsewhere> gain;
  auto members() { return shardwright::members("gain", gain); }
};

void start(Model& model) { const GradAccumulator<Model> accumulator(model); }
