// SPDX-License-Identifier: Apache-2.0
// expect: Loss: a loss that needs the whole batch before its backward must run under a schedule whose forwards all precede its backwards
// expect: (use GPipe, or CountingFirst for one more forward pass, or a sequence-wise loss, or the aux-loss-free bias)

#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/whole_batch_loss.hpp>

using namespace shardwright;

struct GlobalBalanceLoss {
  static constexpr bool needs_whole_batch = true;
};
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Policy = OneFOneB;
#else
using Policy = GPipe;
#endif
static_assert(carries_loss<GlobalBalanceLoss, PolicySchedule<Policy>>);
