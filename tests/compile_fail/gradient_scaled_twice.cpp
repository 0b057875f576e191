// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: GradientScale: gradients must be scaled once, and this factor already includes the tokens
// expect: and the loss scale (pass the summary's scale to the optimizer unchanged)

#include <shardwright/train/optimizer/adamw.hpp>

using namespace shardwright;

kernels::AdamWStep begin_step(AdamW& optimizer, const GradientSummary& summary, LossScale scale,
                              double rate) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return optimizer.begin(summary.scale / scale, rate);
#else
  static_cast<void>(scale);
  return optimizer.begin(summary.scale, rate);
#endif
}
