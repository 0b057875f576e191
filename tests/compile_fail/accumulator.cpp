// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/train/grad_accumulator.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using OverDp = Layout<0, Partial<Sum, dp>>;

struct Model {
  using target = DefaultTarget;
  template <class Visitor> void for_each_parameter(Visitor&&) {}
};

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

namespace accumulator_axes_differ {
// expect: GradAccumulator: add() must get a LossSum and a TokenCount over the same axes, never a mean or a plain number

void step(GradAccumulator<Model>& accumulator) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  accumulator.add(LossSum<OverDp>{7.0}, TokenCount<Layout<0, Partial<Sum, dp, cp>>>{4});
#else
  accumulator.add(LossSum<OverDp>{7.0}, TokenCount<OverDp>{4});
#endif
}
} // namespace accumulator_axes_differ

namespace accumulator_host_sums {
// expect: GradAccumulator: the sums of a model on a device must be passed on unchanged, in device memory (call add(sums) with what the model returned)

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
} // namespace accumulator_host_sums

namespace accumulator_mean_loss {
// expect: GradAccumulator: add() must get a LossSum and a TokenCount over the same axes, never a mean or a plain number
// expect: (pass the sum of token losses and the number of tokens; it divides once by the global count)

void step(GradAccumulator<Model>& accumulator) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  accumulator.add(MeanLoss{1.75}, TokenCount<OverDp>{4});
#else
  accumulator.add(LossSum<OverDp>{7.0}, TokenCount<OverDp>{4});
#endif
}
} // namespace accumulator_mean_loss

namespace accumulator_other_target {
// expect: GradAccumulator: the model must name the target of its parameters (add `using target = ...` to it)

struct Model {
#ifndef SHARDWRIGHT_EXPECT_FAIL
  using target = Elsewhere;
#endif
  Parameter<Layout<1>, Layout<1>, float, DataParallel, Elsewhere> gain;
  auto members() { return shardwright::members("gain", gain); }
};

void start(Model& model) { const GradAccumulator<Model> accumulator(model); }
} // namespace accumulator_other_target

namespace accumulator_plain_number {
// expect: GradAccumulator: add() must get a LossSum and a TokenCount over the same axes, never a mean or a plain number

void step(GradAccumulator<Model>& accumulator) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  accumulator.add(1.75, 4);
#else
  accumulator.add(LossSum<OverDp>{7.0}, TokenCount<OverDp>{4});
#endif
}
} // namespace accumulator_plain_number

namespace loss_without_context {
// expect: GradAccumulator: the loss must be Partial over each axis that shards the tokens, including cp where it shards sequences, and over no other (pass on the sums that the model returns: a missing axis leaves tokens out, an extra one counts each token once per copy)

struct Model {
  using target = DefaultTarget;
  using Loss =
      CrossEntropyOn<Layout<2, Shard<0, dp>, Shard<1, cp>>, DefaultTarget>; // sequences are shared over cp
  template <class Visitor> void for_each_parameter(Visitor&&) {}
};

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Over = Layout<0, Partial<Sum, dp>>;
#else
using Over = Layout<0, Partial<Sum, dp, cp>>;
#endif

void step(GradAccumulator<Model>& accumulator) { accumulator.add(LossSum<Over>{7.0}, TokenCount<Over>{4}); }
} // namespace loss_without_context

namespace quantized_on_a_device {
// expect: Parameter: quantized weights must be on the host, whose processors widen them (keep weights on a device whole, with Frozen<Zero>)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Choice = Frozen<Zero3, NormalFloat4>;
#else
using Choice = Frozen<Zero3>;
#endif

static_assert(!Parameter<Layout<2>, Layout<2>, float, Choice, Elsewhere>::trained);
} // namespace quantized_on_a_device
