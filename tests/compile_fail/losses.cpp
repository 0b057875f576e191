// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/nn/losses/linear_cross_entropy.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/train/step/loss.hpp>
#include <shardwright/train/tape/sum_loss.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using PerToken = Layout<0, Partial<Sum, dp>>;

namespace cross_entropy_targets {
// expect: cross_entropy: the targets must have the layout of the scores without their last dimension, replicated over the axes of the vocabulary (redistribute the targets to the second layout in the trace)

using Scores = Layout<2, Shard<0, dp>, Shard<1, cp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Targets = Layout<1, Shard<0, tp>>; // of equal extents if dp and tp are equal, but of other rows
#else
using Targets = Layout<1, Shard<0, dp>>;
#endif

auto loss(const ShardedTensor<Scores>& scores, const ShardedTensor<Targets, std::int32_t>& targets) {
  return cross_entropy(scores, targets);
}
} // namespace cross_entropy_targets

namespace linear_cross_entropy_targets {
// expect: cross_entropy: the targets must have the layout of the scores without their last dimension, replicated over the axes of the vocabulary (redistribute the targets to the second layout in the trace)

using Hidden = Layout<2, Shard<0, dp>>;
using Table = Parameter<Layout<2, Shard<0, tp>>, Layout<2, Shard<0, tp>, Partial<Sum, dp>>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Targets = Layout<1>; // every rank has those of all
#else
using Targets = Layout<1, Shard<0, dp>>;
#endif

auto loss(const Var<Hidden>& x, Table& table, const ShardedTensor<Targets, std::int32_t>& targets) {
  return linear_cross_entropy(x, table, targets);
}
} // namespace linear_cross_entropy_targets

namespace loss_sum_average {
// expect: LossSum: the parts of ranks must be added, not averaged or compared (give the sum over this rank's tokens, in Layout<0, Partial<Sum, axes...>>)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Over = Layout<0, Partial<Avg, dp>>; // the mean of each rank
#else
using Over = Layout<0, Partial<Sum, dp>>;
#endif

LossSum<Over> loss{1.0};
} // namespace loss_sum_average

namespace loss_sum_not_scalar {
// expect: LossSum: its layout must be that of a scalar (use Layout<0, Partial<Sum, axes...>>)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Over = Layout<2, Shard<0, dp>>;
#else
using Over = Layout<0, Partial<Sum, dp>>;
#endif

LossSum<Over> loss{1.0};
} // namespace loss_sum_not_scalar

namespace reproducible_mse {
// expect: mse: on a Reproducible target a loss must consist of loss terms, which squares are too small for (use cross_entropy, or a target that is not Reproducible)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Target = Reproducible<DefaultTarget>;
#else
using Target = DefaultTarget;
#endif
using Rows = ShardedTensor<Layout<2, Shard<0, dp>>, float, Target>;

auto distance(const Rows& x, const Rows& wanted) { return mse(x, wanted); }
} // namespace reproducible_mse

namespace sum_loss_not_scalar {
// expect: sum_loss: the loss must be one number (reduce it with sum)

void finish(const Var<Layout<1, Shard<0, dp>>>& losses, TokenCount<PerToken> tokens) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(sum_loss(losses, tokens));
#else
  static_cast<void>(sum_loss(sum(losses), tokens));
#endif
}
} // namespace sum_loss_not_scalar

namespace sum_loss_partial_over_model {
// expect: sum_loss: the loss must be Partial over each axis that shards the tokens, and over no other (read it with .as<L>() of the TokenCount's layout, which reduces over the axes of the model)

void finish(const Var<Layout<0, Partial<Sum, dp, tp>>>& loss, TokenCount<PerToken> tokens) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(sum_loss(loss, tokens)); // every rank of tp has a part of it
#else
  static_cast<void>(sum_loss(loss.as<PerToken>(), tokens));
#endif
}
} // namespace sum_loss_partial_over_model

namespace token_count_average {
// expect: TokenCount: the parts of ranks must be added, not averaged or compared (use Layout<0, Partial<Sum, axes...>>)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Over = Layout<0, Partial<Avg, dp>>;
#else
using Over = Layout<0, Partial<Sum, dp>>;
#endif

TokenCount<Over> tokens{4};
} // namespace token_count_average

namespace sum_loss_reproducible {
// expect: sum_loss: on a Reproducible target a loss must be summed by the library, as only then its bits do not depend on the mesh (use cross_entropy or linear_cross_entropy, or a target that is not Reproducible)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Target = Reproducible<DefaultTarget>;
#else
using Target = DefaultTarget;
#endif

void finish(const Var<PerToken, float, Target>& loss, TokenCount<PerToken> tokens) {
  static_cast<void>(sum_loss(loss, tokens));
}
} // namespace sum_loss_reproducible
