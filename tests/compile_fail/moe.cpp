// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/nn/experts/balance_loss.hpp>
#include <shardwright/nn/experts/counts.hpp>
#include <shardwright/nn/experts/dispatch.hpp>
#include <shardwright/nn/experts/load.hpp>
#include <shardwright/nn/experts/route.hpp>
#include <shardwright/tensor/experts/grouped_product.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/tape/parameter_operand.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Rows = DispatchLayout<Layout<2, Shard<0, dp, ep>>, AxisList<ep>>;
using Weights = Layout<3, Shard<0, ep>>;
using Tokens = Layout<2, Shard<0, dp>>;

namespace moe_01_mean_in_sum {
// expect: CountedLoss: a sum of losses may be added only to one over the same axes, never to a mean, a plain number or a sum over other axes (add the sum that a loss returns, and leave the division to GradAccumulator)

// Loss of the tokens and, say, of further tokens predicted, each divided by its own count: not their mean.
using Tokens = Layout<0, Partial<Sum, dp, cp>>;

void join(CountedLoss<Tokens>& loss, CountedLoss<Tokens> balance) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  loss += MeanLoss{balance.loss.value / 3};
#else
  loss += balance;
#endif
}
} // namespace moe_01_mean_in_sum

namespace moe_03_unfinished_logits {
// expect: route: the input must not be Partial, an incomplete sum (redistribute it first)

void choose(const Var<Layout<2, Shard<0, dp>, Partial<Sum, tp>>>& logits) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(route(logits, {.chosen = 2})); // each rank of tp would choose by its part of the sum
#else
  static_cast<void>(route(logits.as<Layout<2, Shard<0, dp>>>(), {.chosen = 2}));
#endif
}
} // namespace moe_03_unfinished_logits

namespace moe_05_router_gradient_over_tp {
// expect: Parameter: every use must give its gradient in the parameter's raw layout, but this one gives another

using Tokens = Layout<3, Shard<0, dp>, Shard<1, tp>>; // sequences are split over tp, too

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Raw = Layout<2, Partial<Sum, dp>>; // so the gradients of its ranks are parts, which nobody would sum
#else
using Raw = Layout<2, Partial<Sum, dp, tp>>;
#endif

void choose(const Var<Tokens>& x, Parameter<Layout<2>, Raw>& weight) {
  static_cast<void>(route(matmul(x, weight), {.chosen = 2}));
}
} // namespace moe_05_router_gradient_over_tp

namespace moe_06_placement_dropped {
// expect: Parameter: every use must give its gradient in the parameter's raw layout, but this one gives another

#ifdef SHARDWRIGHT_EXPECT_FAIL // as if the gradient were whole on each rank of dp, which saw other tokens
using Raw = Layout<3, Shard<0, ep>>;
#else
using Raw = Layout<3, Shard<0, ep>, Partial<Sum, dp>>;
#endif

auto product(const Var<Rows>& rows, Parameter<Weights, Raw>& weights) { return grouped(rows, weights); }
} // namespace moe_06_placement_dropped

namespace moe_07_bias_without_tp {
// expect: ExpertCounts: the choice must have the layout of the logits that the counts are made for, whose axes are those that split tokens (make the counts for the layout that the router reads)

using Tokens = Layout<3, Shard<0, dp>, Shard<1, cp, tp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Counted = Layout<3, Shard<0, dp>, Shard<1, cp>>; // ranks of tp would each have a bias of their own
#else
using Counted = Tokens;
#endif

void count(ExpertLoad<Counted>& load, const Var<Tokens>& logits) {
  load.count(logits.first_pass(), choose_experts(logits.value(), {.chosen = 2}));
}
} // namespace moe_07_bias_without_tp

namespace moe_11_loss_scaled {
// expect: CountedLoss: a sum of losses must not be scaled, as its gradient is on the tape already and one division by the tokens of the global batch follows (pass the coefficient to the loss)

using Tokens = Layout<2, Shard<0, dp, tp>>;

auto balance(const Var<Tokens>& logits, const ExpertChoice<Tokens>& choice, double tokens) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return balance_loss<WholeMicrobatch>(logits, choice) * tokens; // has that factor already
#else
  static_cast<void>(tokens);
  return balance_loss<WholeMicrobatch>(logits, choice, {.coefficient = 0.01});
#endif
}
} // namespace moe_11_loss_scaled

namespace moe_14_gradient_over_owners {
// expect: Parameter: every use must give its gradient in the parameter's raw layout, but this one gives another

#ifdef SHARDWRIGHT_EXPECT_FAIL // as of a weight that every rank has: its sum over ep would mix experts
using Raw = Layout<3, Partial<Sum, dp, ep>>;
#else
using Raw = Layout<3, Shard<0, ep>, Partial<Sum, dp>>;
#endif

auto product(const Var<Rows>& rows, Parameter<Weights, Raw>& weights) { return grouped(rows, weights); }
} // namespace moe_14_gradient_over_owners

namespace moe_counts_over_pp {
// expect: Mesh: an axis that divides the model, such as pp, must not be named on a mesh that lacks it, since ranks along it hold other parts of the model (name other axes, or use the mesh that has it)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Tokens = Layout<2, Shard<0, dp, pp>>; // ranks of pp hold other layers, with experts of their own
#else
using Tokens = Layout<2, Shard<0, dp>>;
#endif

auto load_of_layer(const DeviceMesh<dp, tp>& mesh_of_stage) { return ExpertLoad<Tokens>(mesh_of_stage, 8); }
} // namespace moe_counts_over_pp

namespace moe_evaluation_counted {
// expect: ExpertCounts: add() must be given the FirstPass, or evaluations and replays would count, too (pass first_pass() of the tape or of a Var on it)

void count(ExpertCounts<Tokens>& counts, const Var<Tokens>& logits, const ExpertChoice<Tokens>& choice) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  counts.add(logits, choice);
#else
  counts.add(logits.first_pass(), choice);
#endif
}
} // namespace moe_evaluation_counted

namespace moe_running_counts {
// expect: stale_balance_loss: the counts must be those of a completed step, as running sums over microbatches depend on their order (pass ExpertLoad::last_step() or what ExpertCounts::finish() returned)

void balance(const Var<Tokens>& logits, const ExpertChoice<Tokens>& choice, ExpertCounts<Tokens>& of_step,
             const StaleCounts<>& of_last_step) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(of_last_step);
  stale_balance_loss(logits, choice, of_step);
#else
  static_cast<void>(of_step);
  static_cast<void>(stale_balance_loss(logits, choice, of_last_step));
#endif
}
} // namespace moe_running_counts

namespace moe_stale_counts_as_exact {
// expect: balance_loss: counts of the last step are not those of its own tokens, and its gradient would not be that of the loss (leave them out, or call stale_balance_loss to accept that)

void balance(const Var<Tokens>& logits, const ExpertChoice<Tokens>& choice, const StaleCounts<>& counts) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  balance_loss<WholeMicrobatch>(logits, choice, counts);
#else
  static_cast<void>(stale_balance_loss(logits, choice, counts));
#endif
}
} // namespace moe_stale_counts_as_exact
