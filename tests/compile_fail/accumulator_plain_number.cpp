// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: GradAccumulator: add() must get a LossSum and a TokenCount over the same axes, never a mean or a plain number

#include <shardwright/train/grad_accumulator.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using OverDp = Layout<0, Partial<Sum, dp>>;
struct Model {
  using target = DefaultTarget;
  template <class Visitor> void for_each_parameter(Visitor&&) {}
};

void step(GradAccumulator<Model>& accumulator) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  accumulator.add(1.75, 4);
#else
  accumulator.add(LossSum<OverDp>{7.0}, TokenCount<OverDp>{4});
#endif
}
