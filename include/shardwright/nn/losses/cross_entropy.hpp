// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Cross entropy of logits that may be sharded over the vocabulary, as a LossSum and a TokenCount.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/tensor/checks/id_faults.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/kernels/ordered/token_losses.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/memory/scalars.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/train/step/device_loss.hpp>
#include <shardwright/train/step/loss.hpp>
#include <shardwright/train/step/loss_scale.hpp>
#include <shardwright/train/tape/loss_node.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The summed loss of one batch and its valid tokens, on the host or in device memory; partial over
/// the axes that shard the targets.
template <LayoutType Targets, class Target>
using CrossEntropyOn = CountedLossOn<ReduceAllLayout<Sum, Targets>, Target>;

/// @brief Variants of cross entropy.
struct CrossEntropyOptions {
  /// Share of each target that is spread uniformly over the vocabulary (Szegedy et al., arXiv 1512.00567,
  /// section 7), in [0, 1).
  double label_smoothing = 0;
  std::int32_t ignored = -1; ///< Targets with this id do not count; neither do negative ones.

  /// @brief The numbers that all ranks must give alike.
  [[nodiscard]] std::array<GivenNumber, 2> numbers() const {
    return {GivenNumber("label smoothing", label_smoothing), GivenNumber("ignored id", ignored)};
  }
};

namespace detail {

/// The trace shows the layout of the targets and the one that the scores ask for.
template <class Targets, class Wanted> struct TargetsOfScores {
  static constexpr bool value = any_invalid<Wanted> || std::is_same_v<Targets, Wanted>;
  static_assert(
      value,
      "cross_entropy: the targets must have the layout of the scores without their last dimension, replicated over the axes of the vocabulary (redistribute the targets to the second layout in the trace)");
};

/// Whether scores in layout `L` can be compared with targets in layout `I`: row by row, on the same ranks.
template <LayoutType L, LayoutType I>
inline constexpr bool scores_fit_targets = TargetsOfScores<
    I, Gradient<ReductionLayout<Sum, L::tensor_rank - 1,
                                ElementwiseNonlinearLayout<operation::cross_entropy, L>>>>::value;

/// Row statistics over the whole vocabulary; every rank along its axes has them. `Element` is an
/// AccumulationElement.
template <LayoutType Rows, class Element, class Target> struct RowStatistics {
  ShardedTensor<Rows, const Element, Target> maximum;
  ShardedTensor<Rows, Element, Target> sum;
  ShardedTensor<Rows, Element, Target> target_score;
};

/// Parts of the vocabulary in a rank's block, of ordered_parts in all.
/// @throws InvalidArgument if they cannot be shared, alike on all ranks
template <class Scores>
[[nodiscard]] std::size_t vocabulary_parts(const Scores& scores, SourceLocation where) {
  using L = typename Scores::layout;
  const std::int64_t vocabulary = scores.shape().back();
  const std::int64_t ranks = ranks_along(scores.core(), L::value, L::axes, L::tensor_rank - 1);
  if (vocabulary == 0 || vocabulary % ordered_parts != 0 || ordered_parts % ranks != 0)
    reject_operation("cross_entropy",
                     "on a Reproducible target the vocabulary must be a multiple of " +
                         std::to_string(ordered_parts) +
                         ", and the axes that shard it must have a power of two of ranks, up to that, but " +
                         std::to_string(ranks) + " ranks share " + std::to_string(vocabulary) +
                         " words (pad the vocabulary, and choose 1, 2, 4 or 8 ranks)",
                     scores.core(), where);
  return static_cast<std::size_t>(ordered_parts / ranks);
}

/// One read of the scores, then three reductions over the vocabulary's axes: Partial<Max>, then twice
/// Partial<Sum>, finished by type. On a Reproducible target, a rank's sums are those of equal parts of the
/// vocabulary, in a binary tree.
template <LayoutType L, class E, class Target, LayoutType I, class Id>
[[nodiscard]] auto
row_statistics(const ShardedTensor<L, E, Target>& scores, const ShardedTensor<I, Id, Target>& targets,
               const kernels::TargetRule& rule, const RowOrder& order, SourceLocation where) {
  using Element = AccumulationElement<E>;
  using Checked = ElementwiseNonlinearLayout<operation::cross_entropy, L>;
  using Maxima = ReductionLayout<Max, L::tensor_rank - 1, Checked>;
  using Sums = ReductionLayout<Sum, L::tensor_rank - 1, Checked>;
  constexpr std::size_t last = L::tensor_rank - 1;
  const auto shape = rows_shape(scores.shape());
  require_one_mesh("cross_entropy", scores, targets, where);
  require_shape("cross_entropy", "tensor of targets", targets.shape(), shape, scores.core(), where);
  const auto& execution = scores.execution();
  ShardedTensor<Maxima, Element, Target> local_maximum(scores.resources(), shape);
  ShardedTensor<Sums, Element, Target> local_sum(scores.resources(), shape);
  ShardedTensor<Sums, Element, Target> local_target(scores.resources(), shape);
  const auto check = id_check(targets, scores.shape()[last], true, order);
  if constexpr (Maxima::value.has_partial() && is_reproducible<Target>) {
    const std::size_t parts = vocabulary_parts(scores, where);
    auto workspace = workspace_of<Element>(
        scores.resources(), kernels::vocabulary_parts_workspace(local_sum.local_size(), parts));
    kernels::vocabulary_parts_statistics(execution, scores.local_matrix(), vector_of(targets),
                                         scores.local_offset()[last], parts, mutable_vector_of(local_maximum),
                                         mutable_vector_of(local_target), workspace.mutable_data(), rule,
                                         check);
    reject_unknown_ids(targets, where);
    auto maximum = redistribute<I>(local_maximum);
    kernels::vocabulary_parts_sum(execution, parts, vector_of(maximum), mutable_vector_of(local_sum),
                                  workspace.mutable_data());
    return RowStatistics<I, Element, Target>{std::move(maximum), redistribute<I>(std::move(local_sum)),
                                             redistribute<I>(std::move(local_target))};
  } else {
    kernels::cross_entropy_statistics(execution, scores.local_matrix(), vector_of(targets),
                                      scores.local_offset()[last], mutable_vector_of(local_maximum),
                                      mutable_vector_of(local_sum), mutable_vector_of(local_target), rule,
                                      check);
    reject_unknown_ids(targets, where);
    auto maximum = redistribute<I>(local_maximum);
    if constexpr (Maxima::value.has_partial())
      kernels::cross_entropy_rebase(execution, vector_of(local_maximum), vector_of(maximum),
                                    mutable_vector_of(local_sum));
    return RowStatistics<I, Element, Target>{std::move(maximum), redistribute<I>(std::move(local_sum)),
                                             redistribute<I>(std::move(local_target))};
  }
}

template <LayoutType I, class Element, class Target, class Id>
[[nodiscard]] CrossEntropyOn<I, Target> sum_of_losses(const RowStatistics<I, Element, Target>& rows,
                                                      const ShardedTensor<I, Id, Target>& targets,
                                                      const kernels::TargetRule& rule) {
  const auto& execution = targets.execution();
  ShardedTensor<I, Element, Target> losses(targets.resources(), targets.shape());
  kernels::cross_entropy_loss(execution, vector_of(rows.maximum), vector_of(rows.sum),
                              vector_of(rows.target_score), vector_of(targets), mutable_vector_of(losses),
                              rule);
  Scalars<2, Target> totals(targets.resources());
  if constexpr (is_reproducible<Target>)
    kernels::sum_losses_exactly(execution, vector_of(losses), vector_of(targets), totals.view(), rule);
  else
    kernels::sum_losses(execution, vector_of(losses), vector_of(targets), totals.view(), false, rule);
  return counted_loss<ReduceAllLayout<Sum, I>>(std::move(totals));
}

/// The options that kernels need.
template <class Scores>
[[nodiscard]] kernels::TargetRule target_rule(const Scores& scores, const CrossEntropyOptions& options,
                                              SourceLocation where) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1))
    reject_operation("cross_entropy",
                     "the label smoothing must be at least 0 and below 1, but it is " +
                         std::to_string(options.label_smoothing) +
                         " (pass the share that is spread over the vocabulary)",
                     scores.core(), where);
  return {options.ignored, options.label_smoothing, static_cast<double>(scores.shape().back())};
}

/// The loss. With a factor, `scores` then hold its gradient, softmax - one-hot and 0 for masked tokens, times
/// that.
/// @param order of the rows of the batch's sequences, for errors
template <class Scores, class Targets>
[[nodiscard]] CrossEntropyOn<typename Targets::layout, typename Scores::target>
cross_entropy_of(Scores& scores, const Targets& targets, const CrossEntropyOptions& options,
                 const RowOrder& order, SourceLocation where, const kernels::LossFactor* factor = nullptr) {
  if constexpr (scores_fit_targets<typename Scores::layout, typename Targets::layout>) {
    const kernels::TargetRule rule = target_rule(scores, options, where);
    const auto rows = row_statistics(scores, targets, rule, order, where);
    if constexpr (!std::is_const_v<Scores>)
      if (factor != nullptr) {
        const auto data = scores.mutable_local_matrix();
        kernels::cross_entropy_backward(scores.execution(), data, vector_of(rows.maximum),
                                        vector_of(rows.sum), vector_of(targets), scores.local_offset().back(),
                                        *factor, data, rule);
      }
    return sum_of_losses(rows, targets, rule);
  } else {
    return {};
  }
}

} // namespace detail

/// @brief Summed cross entropy of next-token scores, in nats; negative targets do not count.
///
/// The row maximum is an all_reduce of Partial<Max>, the sums of exponentials and target scores of
/// Partial<Sum>, over the axes that shard the vocabulary (Shoeybi et al., arXiv 1909.08053, section 3).
/// @param scores [..., vocabulary]
/// @param targets int32 [...], sharded like the scores, except over the vocabulary
/// @throws InvalidArgument for a label smoothing outside [0, 1), and for targets of another shape or mesh;
/// DataError for a target beyond the vocabulary, which names its place; on a device, the step's report
/// throws it.
template <LayoutType L, class E, class Target, LayoutType I, class Id>
[[nodiscard]] CrossEntropyOn<I, Target>
cross_entropy(const ShardedTensor<L, E, Target>& scores, const ShardedTensor<I, Id, Target>& targets,
              const CrossEntropyOptions& options = {}, SourceLocation where = SourceLocation::current()) {
  return detail::cross_entropy_of(scores, targets, options, {}, where);
}

namespace operation {

/// @brief cross_entropy of scores on a tape, whose gradient is computed in their memory with the loss.
template <class Targets> struct CrossEntropyLoss {
  static constexpr std::string_view name = "cross_entropy";
  static constexpr std::array<std::string_view, 0> differs_along{};
  Targets targets;
  CrossEntropyOptions options;
  RowOrder order;

  [[nodiscard]] auto numbers() const { return options.numbers(); }

  template <AnyShardedTensor X> [[nodiscard]] auto loss(SourceLocation where, const X& scores) const {
    return detail::cross_entropy_of(scores, targets, options, order, where);
  }
  template <AnyShardedTensor X>
  [[nodiscard]] auto loss_and_gradient(SourceLocation where, X&& scores, const LossScale& scale) const {
    auto gradient = detail::owned(std::forward<X>(scores));
    const kernels::LossFactor factor = scale.in_kernels();
    auto loss = detail::cross_entropy_of(gradient, targets, options, order, where, &factor);
    return std::pair{std::move(loss), std::move(gradient)};
  }
};

} // namespace operation

/// @brief Summed cross entropy of scores on a tape, in nats; negative targets do not count. Tape::backward
/// propagates its gradient, times the tape's loss scale, whether its result is used or not; to only monitor
/// it, use `cross_entropy(scores.value(), targets)`.
///
/// Vocabulary and targets may be sharded as for tensors. The gradient overwrites the scores if they have no
/// other reader.
/// @param scores [..., vocabulary]
/// @param targets int32 [...], sharded like the scores, except over the vocabulary
/// @throws InvalidArgument for a label smoothing outside [0, 1), and for targets of another shape or mesh;
/// DataError for a target beyond the vocabulary, which names its place; on a device, the step's report
/// throws it.
template <detail::TapeOperand X, LayoutType I, class Id, class Target>
[[nodiscard]] auto cross_entropy(X&& scores, const ShardedTensor<I, Id, Target>& targets,
                                 const CrossEntropyOptions& options = {},
                                 SourceLocation where = SourceLocation::current()) {
  using Targets = ShardedTensor<I, const std::remove_const_t<Id>, Target>;
  if (scores.tape().checks_inputs())
    require_equal_inputs(targets, where);
  return detail::record_loss(
      operation::CrossEntropyLoss<Targets>{targets.share(), options, scores.tape().rows()}, where,
      std::forward<X>(scores));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
