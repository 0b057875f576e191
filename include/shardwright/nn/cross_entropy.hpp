// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Cross entropy of scores that may be sharded over the vocabulary, as a LossSum and a TokenCount.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/nn/rms_norm.hpp>
#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/scalars.hpp>
#include <shardwright/train/device_loss.hpp>
#include <shardwright/train/loss.hpp>
#include <shardwright/train/loss_scale.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The summed loss of one batch and its valid tokens; partial over the axes that shard the targets.
template <LayoutType Targets>
struct CrossEntropy {
  using layout = ReduceAllLayout<Sum, Targets>;
  LossSum<layout> loss;
  TokenCount<layout> tokens;

  /// @brief The sums of both batches.
  CrossEntropy& operator+=(const CrossEntropy& other) {
    loss.value += other.loss.value;
    tokens.value += other.tokens.value;
    return *this;
  }
  /// @brief Itself: what DeviceLoss::read gives where the sums are a device's.
  [[nodiscard]] const CrossEntropy& read() const noexcept { return *this; }
};

/// @brief Where the loss of a target's kernels is: on the host, or in the device's memory.
template <LayoutType Targets, class Target>
using CrossEntropyOn = std::conditional_t<bool(Target::host_accessible), CrossEntropy<Targets>,
                                          DeviceLoss<ReduceAllLayout<Sum, Targets>, Target>>;

namespace detail {

/// Row statistics over the whole vocabulary; every rank along its axes has them. `Element` is a MainElement.
template <LayoutType Rows, class Element, class Target>
struct RowStatistics {
  ShardedTensor<Rows, Element, Target> maximum;
  ShardedTensor<Rows, Element, Target> sum;
  ShardedTensor<Rows, Element, Target> target_score;
};

/// Three reductions over the vocabulary's axes: Partial<Max>, then twice Partial<Sum>, finished by type.
template <LayoutType L, class E, class Target, LayoutType I, class Id>
[[nodiscard]] auto row_statistics(const ShardedTensor<L, E, Target>& scores,
                                  const ShardedTensor<I, Id, Target>& targets) {
  using Element = MainElement<E>;
  using Checked = ElementwiseNonlinearLayout<operation::cross_entropy, L>;
  using Maxima = ReductionLayout<Max, L::tensor_rank - 1, Checked>;
  using Sums = ReductionLayout<Sum, L::tensor_rank - 1, Checked>;
  const auto shape = rows_shape(scores.shape());
  const auto& execution = scores.execution();
  ShardedTensor<Maxima, Element, Target> local_maximum(scores.resources(), shape);
  kernels::cross_entropy_row_max(execution, scores.local_matrix(), mutable_flat(local_maximum));
  auto maximum = redistribute<I>(std::move(local_maximum));
  ShardedTensor<Sums, Element, Target> local_sum(scores.resources(), shape);
  ShardedTensor<Sums, Element, Target> local_target(scores.resources(), shape);
  constexpr std::size_t last = L::tensor_rank - 1;
  kernels::cross_entropy_row_sums(execution, scores.local_matrix(), flat(maximum), flat(targets),
                                  scores.local_offset()[last], mutable_flat(local_sum),
                                  mutable_flat(local_target));
  return RowStatistics<I, Element, Target>{std::move(maximum), redistribute<I>(std::move(local_sum)),
                                           redistribute<I>(std::move(local_target))};
}

template <LayoutType I, class Element, class Target, class Id>
[[nodiscard]] CrossEntropyOn<I, Target> sum_of_losses(const RowStatistics<I, Element, Target>& rows,
                                                      const ShardedTensor<I, Id, Target>& targets) {
  const auto& execution = targets.execution();
  ShardedTensor<I, Element, Target> losses(targets.resources(), targets.shape());
  kernels::cross_entropy_loss(execution, flat(rows.maximum), flat(rows.sum), flat(rows.target_score),
                              flat(targets), mutable_flat(losses));
  Scalars<2, Target> totals(targets.resources());
  kernels::sum_losses(execution, flat(losses), flat(targets), totals.view());
  if constexpr (Target::host_accessible) {
    const auto host = totals.read();
    return {{host[0]}, {static_cast<std::int64_t>(std::llround(host[1]))}};
  } else {
    return CrossEntropyOn<I, Target>(std::move(totals));
  }
}

} // namespace detail

/// @brief Summed cross entropy of next-token scores, in nats; negative targets do not count.
///
/// The row maximum is an all_reduce of Partial<Max>, the sums of exponentials and target scores of
/// Partial<Sum>, over the axes that shard the vocabulary (Shoeybi et al., arXiv 1909.08053, section 3).
/// @param scores [..., vocabulary] @param targets int32 [...]
template <LayoutType L, class E, class Target, LayoutType I, class Id>
[[nodiscard]] CrossEntropyOn<I, Target> cross_entropy(const ShardedTensor<L, E, Target>& scores,
                                                      const ShardedTensor<I, Id, Target>& targets) {
  return detail::sum_of_losses(detail::row_statistics(scores, targets), targets);
}

/// @brief The same; `scores` then hold the gradient of the summed loss: softmax - one-hot, 0 for masked
/// tokens. Statistics and loss of narrow scores are floats.
/// @param scale multiplies the gradient and not the loss
template <LayoutType L, class Element, class Target, LayoutType I, class Id>
[[nodiscard]] CrossEntropyOn<I, Target>
cross_entropy_with_gradient(ShardedTensor<L, Element, Target>& scores,
                            const ShardedTensor<I, Id, Target>& targets, LossScale scale = {}) {
  const auto rows = detail::row_statistics(scores, targets);
  constexpr std::size_t last = L::tensor_rank - 1;
  kernels::cross_entropy_backward(scores.execution(), scores.mutable_local_matrix(),
                                  detail::flat(rows.maximum), detail::flat(rows.sum), detail::flat(targets),
                                  scores.local_offset()[last], scale.factor());
  return detail::sum_of_losses(rows, targets);
}

/// @brief The loss, and its gradient as tensors of `Out`, the element of the scores or a narrow one: with
/// narrow gradients one pass over memory less than cross_entropy_with_gradient and convert.
template <class Out, LayoutType L, class Element, class Target, LayoutType I, class Id>
[[nodiscard]] std::pair<CrossEntropyOn<I, Target>, ShardedTensor<L, Out, Target>>
cross_entropy_and_gradient(ShardedTensor<L, Element, Target> scores,
                           const ShardedTensor<I, Id, Target>& targets, LossScale scale = {}) {
  if constexpr (std::is_same_v<Out, Element>) {
    auto loss = cross_entropy_with_gradient(scores, targets, scale);
    return {std::move(loss), std::move(scores)};
  } else {
    const auto rows = detail::row_statistics(scores, targets);
    auto loss = detail::sum_of_losses(rows, targets);
    ShardedTensor<L, Out, Target> gradient(scores.resources(), scores.shape());
    constexpr std::size_t last = L::tensor_rank - 1;
    kernels::cross_entropy_backward(
        scores.execution(), scores.local_matrix(), detail::flat(rows.maximum), detail::flat(rows.sum),
        detail::flat(targets), scores.local_offset()[last], scale.factor(), gradient.mutable_local_matrix());
    return {std::move(loss), std::move(gradient)};
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
