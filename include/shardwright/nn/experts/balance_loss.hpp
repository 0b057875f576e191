// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Losses that balance the load of experts, and the z-loss of a router, as sums over tokens.

#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/experts/counts.hpp>
#include <shardwright/nn/experts/route.hpp>
#include <shardwright/tensor/kernels/experts/balance.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/memory/scalars.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/train/step/device_loss.hpp>
#include <shardwright/train/step/loss.hpp>
#include <shardwright/train/step/loss_scale.hpp>
#include <shardwright/train/tape/loss_node.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The probabilities in a balance loss, and its coefficient.
struct BalanceOptions {
  double coefficient = 0.01;                          ///< Factor on the loss, often called alpha.
  RouterScores scores = RouterScores::chosen_softmax; ///< Sigmoids over their sum, or else softmax(logits).
};

/// @brief One token set for each sequence: counts are summed over the axes that split positions, cp and, if
/// the stream is split over it, tp (the sequence-wise loss of DeepSeek-V3, arXiv 2412.19437, equation 17).
struct EachSequence {};
/// @brief One token set for the sequences of a microbatch on the same ranks: counts are summed over the axes
/// that split positions. The result depends on how sequences are distributed over ranks, as in other systems.
struct EachMicrobatch {};
/// @brief One token set for a microbatch of all ranks: counts are summed over every axis that splits tokens.
/// The same on every mesh.
struct WholeMicrobatch {};

namespace detail {

template <LayoutType Logits> using LossOfLogits = ReduceAllLayout<Sum, Logits>;

/// Reductions over the positions of sequences need a dimension of sequences.
template <class Logits> struct HasSequences {
  static constexpr bool value = Logits::tensor_rank >= 3;
  static_assert(
      value,
      "balance_loss: logits must be [sequences, positions, experts], whose layout says which axes split a sequence (reshape them, or take WholeMicrobatch)");
};

/// The trace shows the sets.
template <class Over, class Target> struct SetsOfEveryMesh {
  static constexpr bool value = !is_reproducible<Target> || !std::is_same_v<Over, EachMicrobatch>;
  static_assert(
      value,
      "balance_loss: on a Reproducible target the sets must not be EachMicrobatch, whose sequences depend on the mesh (take EachSequence)");
};

/// How tokens form sets: the layout and shape of the counts, and the rows of a block in each set.
template <class Over, class Choice> struct TokenSets {
  using L = typename Choice::layout;
  static constexpr std::size_t leading = Choice::tensor_rank - 2; // dimensions of sequences
  using Counts = ReductionLayout<Sum, Choice::tensor_rank - 2, L>;

  static std::array<std::int64_t, leading + 1> shape(const Choice& choice, std::int64_t experts) {
    std::array<std::int64_t, leading + 1> out{};
    const AxisBinding axes = bind_axes(choice.core(), L::axes);
    for (std::size_t d = 0; d < leading; ++d) {
      out[d] = std::is_same_v<Over, EachSequence> ? choice.shape()[d] : 1;
      if (std::is_same_v<Over, EachMicrobatch>) // a set for each block of sequences
        for (const int axis : L::value.shard(static_cast<int>(d)))
          out[d] *= axes.extents[static_cast<std::size_t>(axis)];
    }
    out.back() = experts + 1;
    return out;
  }
  static std::size_t rows(const Choice& choice) {
    return std::is_same_v<Over, EachSequence> ? static_cast<std::size_t>(choice.local_shape()[leading])
                                              : choice.local_matrix().extent(0);
  }
};
template <class Choice> struct TokenSets<WholeMicrobatch, Choice> {
  using Counts = ExpertCountsLayout<typename Choice::layout>;
  static std::array<std::int64_t, 1> shape(const Choice&, std::int64_t experts) { return {experts + 1}; }
  static std::size_t rows(const Choice& choice) { return choice.local_matrix().extent(0); }
};

/// The counts of the sets of a choice, on all ranks that share them.
template <class Over, class Choice>
[[nodiscard]] auto counts_of_sets(const Choice& choice, std::int64_t experts, SourceLocation where) {
  using Sets = TokenSets<Over, Choice>;
  using Counts = typename Sets::Counts;
  CountTensor<Counts, typename Choice::target> counts(choice.resources(), Sets::shape(choice, experts),
                                                      where);
  fill_zero(counts);
  count_experts(choice, counts, Sets::rows(choice));
  return redistribute<Gradient<Counts>>(std::move(counts), where).share();
}

/// The sum of the losses of rows.
template <LayoutType L, class Target>
[[nodiscard]] CountedLossOn<L, Target> sum_of_rows(ShardedTensor<Layout<1>, double, Target>& losses) {
  if constexpr (is_reproducible<Target>)
    kernels::run("sw::loss_terms", losses.execution(), losses.local_size(),
                 kernels::RoundLosses{losses.mutable_data()});
  Scalars<2, Target> totals(losses.resources());
  const auto& execution = losses.execution();
  fill_zero<Target>(execution, totals.view().data(), 2);
  kernels::run_sum_in_order(execution, losses.data(), losses.local_size(), totals.view().data(), false);
  auto out = counted_loss<L>(std::move(totals));
  if constexpr (counts_only<Target>) {
    out = {}; // all numbers of a dry run are 1, the count of tokens too
    origin_of(out).counted = true;
  }
  return out;
}

template <class Logits> [[nodiscard]] auto row_losses(const Logits& logits) {
  return workspace_of<double>(logits.resources(), logits.local_matrix().extent(0));
}

/// A per-row loss on logits. `Rows` has `kernel(logits, losses, gradient, experts, factor of the loss)`.
template <class Rows> struct RowLoss {
  static constexpr std::string_view name = Rows::name;
  static constexpr std::array<std::string_view, 0> differs_along{};
  Rows rows;

  [[nodiscard]] std::array<GivenNumber, 1> numbers() const {
    return {GivenNumber("coefficient", rows.coefficient_of_loss())};
  }
  template <AnyShardedTensor X> [[nodiscard]] auto loss(SourceLocation, const X& logits) const {
    using Number = typename X::value_type;
    auto losses = row_losses(logits);
    kernels::run("sw::row_losses", logits.execution(), losses.local_size(),
                 rows.kernel(logits.data(), losses.mutable_data(), static_cast<Number*>(nullptr),
                             logits.shape().back(), kernels::LossFactor{}));
    return sum_of_rows<LossOfLogits<typename X::layout>, typename X::target>(losses);
  }
  template <AnyShardedTensor X>
  [[nodiscard]] auto loss_and_gradient(SourceLocation where, X&& x, const LossScale& scale) const {
    using Logits = std::remove_cvref_t<X>;
    auto losses = row_losses(x);
    auto [from, out] = reuse(std::forward<X>(x), where);
    kernels::run(
        "sw::row_slopes", out.execution(), losses.local_size(),
        rows.kernel(from, losses.mutable_data(), out.mutable_data(), out.shape().back(), scale.in_kernels()));
    return std::pair{sum_of_rows<LossOfLogits<typename Logits::layout>, typename Logits::target>(losses),
                     std::move(out)};
  }
};

template <class Rows> RowLoss(Rows) -> RowLoss<Rows>;

/// The loss for a choice and the counts of its token sets, which stay the same in a replay.
template <class Choice, class Counts> struct BalanceOfRows {
  static constexpr std::string_view name = "balance_loss";
  Choice choice;
  Counts counts; // [sets..., experts + 1]
  std::size_t rows_of_set;
  BalanceOptions options;

  [[nodiscard]] double coefficient_of_loss() const noexcept { return options.coefficient; }
  template <class Number>
  [[nodiscard]] auto kernel(const Number* logits, double* losses, Number* gradient, std::int64_t experts,
                            kernels::LossFactor factor) const {
    return kernels::BalanceRows<Number>{logits,
                                        choice.data(),
                                        counts.data(),
                                        losses,
                                        gradient,
                                        rows_of_set,
                                        static_cast<std::size_t>(choice.shape().back()),
                                        static_cast<std::size_t>(experts),
                                        options.coefficient,
                                        options.scores == RouterScores::sigmoid,
                                        factor};
  }
};
template <class Choice, class Counts>
BalanceOfRows(Choice, Counts, std::size_t, BalanceOptions) -> BalanceOfRows<Choice, Counts>;

template <class Choice> struct SquaresOfRows {
  static constexpr std::string_view name = "router_z_loss";
  Choice choice;
  double coefficient;

  [[nodiscard]] double coefficient_of_loss() const noexcept { return coefficient; }
  template <class Number>
  [[nodiscard]] auto kernel(const Number* logits, double* losses, Number* gradient, std::int64_t experts,
                            kernels::LossFactor factor) const {
    return kernels::RouterZRows<Number>{logits,
                                        choice.data(),
                                        losses,
                                        gradient,
                                        static_cast<std::size_t>(choice.shape().back()),
                                        static_cast<std::size_t>(experts),
                                        coefficient,
                                        factor};
  }
};
template <class Choice> SquaresOfRows(Choice, double) -> SquaresOfRows<Choice>;

template <class Rows, class X>
[[nodiscard]] auto record_row_loss(Rows rows, SourceLocation where, X&& logits) {
  return record_loss(RowLoss<Rows>{std::move(rows)}, where, std::forward<X>(logits));
}

/// The trace shows what was passed instead of the last step's counts or the options.
template <class Given> struct CountsOfLastStep {
  static_assert(
      sizeof(Given) == 0,
      "stale_balance_loss: the counts must be those of a completed step, as running sums over microbatches depend on their order (pass ExpertLoad::last_step() or what ExpertCounts::finish() returned)");
};
template <class Over> struct CountsOfThisStep {
  static_assert(
      sizeof(Over) == 0,
      "balance_loss: counts of the last step are not those of its own tokens, and its gradient would not be that of the loss (leave them out, or call stale_balance_loss to accept that)");
};

/// Counts of the last step; before the first step, 0 of 0 tokens.
template <class Stale, class Choice>
[[nodiscard]] auto known_counts(const Stale& stale, const Choice& choice, std::int64_t experts) {
  if (stale.known())
    return stale.tensor();
  CountTensor<Layout<1>, typename Choice::target> none(choice.resources(), {experts + 1});
  fill_zero(none);
  return none.share();
}

/// Checks that logits and choice belong to the same tokens.
template <class X, class Choice>
void require_choice(const char* operation, const X& logits, const Choice& choice, SourceLocation where) {
  require_one_mesh(operation, logits.resources(), choice, where);
  require_equal_extents(operation, "the choice must be of the tokens of the logits", choice.shape(), 0,
                        logits.shape(), 0, std::size_t{X::tensor_rank} - 1, choice.core(), where);
}

/// The coefficient of a loss of routed tokens among losses of targets.
template <class X> [[nodiscard]] double coefficient_on_tape(const X& logits, double coefficient) {
  return coefficient * logits.tape().counted_share();
}
template <class X> [[nodiscard]] BalanceOptions options_on_tape(const X& logits, BalanceOptions options) {
  options.coefficient = coefficient_on_tape(logits, options.coefficient);
  return options;
}

/// Logits as float or double.
template <class X> [[nodiscard]] decltype(auto) wide_logits(X&& logits, SourceLocation where) {
  using Element = typename std::remove_cvref_t<X>::element;
  if constexpr (is_narrow<Element>)
    return convert<AccumulationElement<Element>>(std::forward<X>(logits), where);
  else
    return std::forward<X>(logits);
}

template <class X>
using ChoiceFor =
    ExpertChoice<typename std::remove_cvref_t<X>::layout, typename std::remove_cvref_t<X>::target>;

} // namespace detail

/// @brief The load-balancing loss times the tokens of its sets: coefficient x sum over sets S of T x E / (K
/// T^2) x sum over experts of count(S) x (sum over tokens of S of p), in a CountedLoss of 0 tokens.
///
/// A sum over tokens: `loss += balance_loss<EachSequence>(...)` adds it to the sum of token losses, and both
/// are divided once, by the targets of the global batch that count. A balanced set contributes coefficient x
/// T. Where not all targets count, Tape::set_counted_share(), which a batch's `counted_share` sets,
/// multiplies it by their share of the tokens, so that the result is a mean over the routed tokens.
/// Gradients, times the tape's loss scale, flow only through p. Padding tokens, whose choice is -1, are
/// ignored. Counts are int64 and summed over the axes that split the tokens of a set: one all_reduce of
/// (experts + 1) integers for each set, and none if no axis does. Never over an axis of experts or layers,
/// since tokens are counted before they are dispatched.
/// @tparam Over EachSequence, EachMicrobatch or WholeMicrobatch
/// @param logits [sequences, positions, experts], or [tokens, experts] of WholeMicrobatch
/// @param choice the counted experts: those of the routing, or those of choose_experts() without bias and
/// groups, as in the papers
/// @throws InvalidArgument if the choice is not that of the tokens of the logits, or is on another mesh; the
/// typed errors of communicators.
template <class Over, detail::TapeValue X>
[[nodiscard]] auto balance_loss(X&& logits, const detail::ChoiceFor<X>& choice,
                                const BalanceOptions& options = {},
                                SourceLocation where = SourceLocation::current()) {
  using Input = std::remove_cvref_t<X>;
  if constexpr (!std::is_same_v<Over, WholeMicrobatch>)
    static_assert(detail::HasSequences<Input>::value);
  static_cast<void>(detail::SetsOfEveryMesh<Over, typename Input::target>::value);
  detail::require_choice("balance_loss", logits, choice, where);
  auto counts = detail::counts_of_sets<Over>(choice, logits.shape().back(), where);
  const std::size_t rows = detail::TokenSets<Over, detail::ChoiceFor<X>>::rows(choice);
  const BalanceOptions scaled = detail::options_on_tape(logits, options);
  return detail::record_row_loss(detail::BalanceOfRows{choice, std::move(counts), rows, scaled}, where,
                                 detail::wide_logits(std::forward<X>(logits), where));
}

/// @brief Rejects the counts of another step, with an error sentence.
template <class Over, detail::TapeValue X>
void balance_loss(X&&, const detail::ChoiceFor<X>&,
                  const StaleCounts<typename std::remove_cvref_t<X>::target>&, const BalanceOptions& = {}) {
  static_cast<void>(sizeof(detail::CountsOfThisStep<Over>));
}

/// @brief The same with the counts of the last step: works with any schedule and number of microbatches, at
/// the price of a gradient that lags by a step. The token set is the last step's batch; its loss is 0 before
/// the first step.
template <detail::TapeValue X>
[[nodiscard]] auto stale_balance_loss(X&& logits, const detail::ChoiceFor<X>& choice,
                                      const StaleCounts<typename std::remove_cvref_t<X>::target>& counts,
                                      const BalanceOptions& options = {},
                                      SourceLocation where = SourceLocation::current()) {
  detail::require_choice("stale_balance_loss", logits, choice, where);
  return detail::record_row_loss(
      detail::BalanceOfRows{choice, detail::known_counts(counts, choice, logits.shape().back()),
                            choice.local_matrix().extent(0), detail::options_on_tape(logits, options)},
      where, detail::wide_logits(std::forward<X>(logits), where));
}

/// @brief Rejects counts of the current step, with an error sentence.
template <detail::TapeValue X, LayoutType L, class Target>
void stale_balance_loss(X&&, const detail::ChoiceFor<X>&, const ExpertCounts<L, Target>&,
                        const BalanceOptions& = {}) {
  static_cast<void>(sizeof(detail::CountsOfLastStep<ExpertCounts<L, Target>>));
}

/// @brief coefficient x sum over tokens of (log of the sum of exp(logits))^2, which keeps logits small (Zoph
/// et al., arXiv 2202.08906, equation 5), in a CountedLoss of 0 tokens; padding tokens are ignored. Among the
/// losses of targets as balance_loss. No communication.
/// @param logits [tokens..., experts]
/// @throws InvalidArgument as balance_loss
template <detail::TapeValue X>
[[nodiscard]] auto router_z_loss(X&& logits, const detail::ChoiceFor<X>& choice, double coefficient = 0.001,
                                 SourceLocation where = SourceLocation::current()) {
  detail::require_choice("router_z_loss", logits, choice, where);
  const double scaled = detail::coefficient_on_tape(logits, coefficient);
  return detail::record_row_loss(detail::SquaresOfRows{choice, scaled}, where,
                                 detail::wide_logits(std::forward<X>(logits), where));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
