// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: GradAccumulator: the loss must be Partial over each axis that shards the tokens, including cp where it shards sequences, and over no other (pass on the sums that the model returns: a missing axis leaves tokens out, an extra one counts each token once per copy)

#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/train/grad_accumulator.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct Model {
  using target = DefaultTarget;
  using Loss = CrossEntropy<Layout<2, Shard<0, dp>, Shard<1, cp>>>; // sequences are shared over cp
  template <class Visitor> void for_each_parameter(Visitor&&) {}
};

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Over = Layout<0, Partial<Sum, dp>>;
#else
using Over = Layout<0, Partial<Sum, dp, cp>>;
#endif

void step(GradAccumulator<Model>& accumulator) { accumulator.add(LossSum<Over>{7.0}, TokenCount<Over>{4}); }
