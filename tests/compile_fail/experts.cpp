// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/ragged.hpp>
#include <shardwright/nn/experts/balance_loss.hpp>
#include <shardwright/nn/experts/capacity.hpp>
#include <shardwright/nn/experts/dispatch.hpp>
#include <shardwright/nn/experts/route.hpp>
#include <shardwright/nn/experts/router.hpp>
#include <shardwright/tensor/experts/grouped_product.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, dp, ep>>;

namespace balance_without_sequences {
// expect: balance_loss: logits must be [sequences, positions, experts], whose layout says which axes split a sequence (reshape them, or take WholeMicrobatch)

using Tokens = Layout<2, Shard<0, dp, cp>>; // which of them splits sequences?

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Over = EachSequence;
#else
using Over = WholeMicrobatch;
#endif

void balance(const Var<Tokens>& logits, const ExpertChoice<Tokens>& choice) {
  static_cast<void>(balance_loss<Over>(logits, choice));
}
} // namespace balance_without_sequences

namespace capacity_tokens_crossed {
// expect: within_capacity: tokens must be split in their first dimension only, so that a rank's tokens follow those of the ranks before it
// expect: (redistribute the choices, and dispatch in that layout)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Tokens = Layout<3, Shard<0, dp>, Shard<1, cp>>;
#else
using Tokens = Layout<3, Shard<0, dp, cp>>;
#endif

auto kept(const ShardedTensor<Tokens, std::int32_t>& chosen) { return within_capacity(chosen, 8, 1.25); }
} // namespace capacity_tokens_crossed

namespace combine_gates_layout {
// expect: combine: the gates must have the layout in which the tokens were dispatched
// expect: (redistribute them, or compute them from the tokens in that layout)

using Rows = DispatchLayout<Tokens, AxisList<ep>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Gates = Layout<2, Shard<0, dp>>;
#else
using Gates = Tokens;
#endif

static_assert(CombineLayout<Rows, Gates>::tensor_rank >= 0);
} // namespace combine_gates_layout

namespace combine_tokens {
// expect: combine: the left operand must be rows grouped by expert (dispatch the tokens)

using Tokens = Layout<2, Shard<0, ep>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = Tokens;
#else
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#endif

static_assert(CombineLayout<Rows, Tokens>::tensor_rank >= 0);
} // namespace combine_tokens

namespace dispatch_choices_layout {
// expect: dispatch: the experts must be chosen in the layout in which the tokens are read
// expect: (redistribute the choices, or read the tokens in their layout)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Choices = Layout<2, Shard<0, ep, dp>>;
#else
using Choices = Tokens;
#endif

auto send(const ShardedTensor<Tokens>& x, const ShardedTensor<Choices, std::int32_t>& experts) {
  return dispatch<ep>(x, experts, {.experts = 8, .most_rows = 64});
}
} // namespace dispatch_choices_layout

namespace dispatch_over_number {
// expect: dispatch: its template arguments must be the axes whose ranks own the experts, as in dispatch<ep> (the number of experts belongs in the ExpertSet)

void send(const ShardedTensor<Tokens>& x, const ShardedTensor<Tokens, const std::int32_t>& experts) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  dispatch<8>(x, experts, {8, 64});
#else
  static_cast<void>(dispatch<ep>(x, experts, {8, 64}));
#endif
}
} // namespace dispatch_over_number

namespace dispatch_tokens_partial {
// expect: dispatch: the tokens must be whole rows, neither Partial nor sharded in their last dimension, nor already dispatched
// expect: (read them in a layout that shards tokens only)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Tokens = Layout<2, Shard<0, ep>, Partial<Sum, tp>>;
#else
using Tokens = Layout<2, Shard<0, ep>>;
#endif

static_assert(DispatchLayout<Tokens, AxisList<ep>>::tensor_rank >= 0);
} // namespace dispatch_tokens_partial

namespace dispatch_tokens_replicated {
// expect: dispatch: every axis that owns experts must split the tokens, as ranks with the same tokens would send each of them twice
// expect: (read the tokens in a layout that shards them over it, too)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Tokens = Layout<2, Shard<0, dp>>;
#else
using Tokens = Layout<2, Shard<0, dp, ep>>;
#endif

static_assert(DispatchLayout<Tokens, AxisList<ep>>::tensor_rank >= 0);
} // namespace dispatch_tokens_replicated

namespace grouped_owners_differ {
// expect: grouped: the weights must be [experts, in, out] and sharded in dimension 0 over the axes that own the experts of the rows, in their order
// expect: (use Shard<0, owners...>, as in the dispatch)

using Rows = DispatchLayout<Layout<2, Shard<0, dp, ep>>, AxisList<dp, ep>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weights = Layout<3, Shard<0, ep, dp>>;
#else
using Weights = Layout<3, Shard<0, dp, ep>>;
#endif

static_assert(GroupedLayout<Rows, Weights>::tensor_rank >= 0);
} // namespace grouped_owners_differ

namespace grouped_tokens {
// expect: grouped: the left operand must be rows grouped by expert (dispatch the tokens)

using Tokens = Layout<2, Shard<0, ep>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = Tokens;
#else
using Rows = DispatchLayout<Tokens, AxisList<ep>>;
#endif

static_assert(GroupedLayout<Rows, Layout<3, Shard<0, ep>>>::tensor_rank >= 0);
} // namespace grouped_tokens

namespace grouped_weights_over_tokens {
// expect: grouped: an axis that splits the tokens must not shard rows or columns of the weights
// expect: (shard them over an axis that replicates the tokens)

using Rows = DispatchLayout<Layout<2, Shard<0, dp, ep>>, AxisList<ep>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weights = Layout<3, Shard<0, ep>, Shard<2, dp>>;
#else
using Weights = Layout<3, Shard<0, ep>, Shard<2, tp>>;
#endif

static_assert(GroupedLayout<Rows, Weights>::tensor_rank >= 0);
} // namespace grouped_weights_over_tokens

namespace reproducible_balance_of_ranks {
// expect: balance_loss: on a Reproducible target the sets must not be EachMicrobatch, whose sequences depend on the mesh (take EachSequence)

using Target = Reproducible<DefaultTarget>;
using Tokens = Layout<3, Shard<0, dp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Over = EachMicrobatch;
#else
using Over = EachSequence;
#endif

void balance(const Var<Tokens, float, Target>& logits, const ExpertChoice<Tokens, Target>& choice) {
  static_cast<void>(balance_loss<Over>(logits, choice));
}
} // namespace reproducible_balance_of_ranks

namespace reproducible_combine_parts {
// expect: combine: on a Reproducible target each rank must hold whole rows, neither Partial nor sharded in their columns, because it adds the slots of a token, and the columns of a gate's gradient, before ranks add theirs (redistribute the rows to the layout in which they were dispatched)

using Target = Reproducible<DefaultTarget>;
using Rows = DispatchLayout<Tokens, AxisList<ep>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Returned = Rows::with_columns<Layout<1, Partial<Sum, tp>>>;
#else
using Returned = Rows;
#endif

auto add(const ShardedTensor<Returned, float, Target>& rows,
         const ShardedTensor<Tokens, float, Target>& gates) {
  return combine(rows, gates);
}
} // namespace reproducible_combine_parts

namespace route_without_tokens {
// expect: route: logits must be [tokens, experts], or have more dimensions of tokens before the experts (reshape them)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Logits = Layout<1>;
#else
using Logits = Layout<2>;
#endif

void choose(const ShardedTensor<Logits>& logits) { static_cast<void>(choose_experts(logits, {.chosen = 2})); }
} // namespace route_without_tokens

namespace router_padding_layout {
// expect: route: padding must be int32, one number for each token, in the layout of the logits' tokens, TokenLayout<Logits>, and on their target (redistribute it)

using Tokens = Layout<3, Shard<0, dp>, Shard<1, cp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Padding = ShardedTensor<Layout<2, Shard<0, dp>>, std::int32_t>; // of whole sequences
#else
using Padding = ShardedTensor<Layout<2, Shard<0, dp>, Shard<1, cp>>, std::int32_t>;
#endif

void choose(Router<Tokens>& router, const Var<Tokens>& x, const Padding& padding) {
  static_cast<void>(router(x, padding));
}
} // namespace router_padding_layout
