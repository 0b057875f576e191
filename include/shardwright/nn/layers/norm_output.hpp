// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The results of norms, and their gradients on a tape, fused with that of the residual branch.

#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/tape/lazy_sum.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A normalised tensor, with the statistics for its gradient.
template <AnyShardedTensor Normed, class Statistics> struct NormOutput {
  Normed normed;
  Statistics statistics;
};

/// @brief NormOutput with the sum that was normalised.
template <AnyShardedTensor Normed, class Statistics> struct AddNormOutput {
  Normed sum;
  Normed normed;
  Statistics statistics;
};

namespace detail {

/// A norm's result as a node takes it.
template <class Output> [[nodiscard]] auto with_statistics(Output&& output) {
  return WithState{std::move(output.normed), std::move(output.statistics)};
}
/// The same with the sum.
template <class Output> [[nodiscard]] auto sum_with_statistics(Output&& output) {
  return std::pair{std::move(output.sum), with_statistics(std::move(output))};
}

/// Gives a norm's gradients: those of gain and biases are computed together with that of x.
///
/// `Norm` has `WeightGradient<X>`, the layout of its weights' gradients, and `gradient(y_gradient, x,
/// statistics, stream, weights, slots)`, where `stream` points to the gradients of x from other readers, or
/// is null.
template <class Norm, class G, class Statistics, class X, class... Weights>
void give_norm_gradients(const Norm& norm, G&& y_gradient, const Statistics& statistics, X& x,
                         Weights&... weights) {
  if constexpr ((Weights::template takes<typename Norm::template WeightGradient<typename X::layout>>() &&
                 ...)) {
    const auto input = x.read_last();
    auto stream = x.take_gradient();
    auto gradient = norm.gradient(std::forward<G>(y_gradient), input, statistics, stream ? &*stream : nullptr,
                                  weights.read()..., weights.slot()...);
    stream.reset();
    if (x.wants_gradient())
      x.give(std::move(gradient));
  }
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
