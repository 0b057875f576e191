// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The logits of an output table and their cross entropy, whose gradient reuses the memory of the
/// logits.

#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Scores x table^T for predictions in an evaluation: in the AccumulationElement, without a gradient,
/// and not rounded as in linear_cross_entropy.
template <detail::TapeOperand X, class C, class R, class E, class Z, class T>
[[nodiscard]] auto linear_scores(X&& x, Parameter<C, R, E, Z, T>& table,
                                 SourceLocation where = SourceLocation::current()) {
  const auto rows = detail::operand_of(std::forward<X>(x), where).read();
  const detail::WeightReading reading(table);
  const auto weight = table.weight();
  using Rows = std::remove_const_t<decltype(rows)>;
  using L =
      MatmulLayout<typename Rows::layout, typename decltype(weight)::layout, MatmulForm::right_transposed>;
  auto shape = rows.shape();
  shape.back() = weight.shape()[0];
  ShardedTensor<L, AccumulationElement<typename Rows::value_type>, T> out(rows.resources(), shape, where);
  matmul_input_gradient_into(out, rows, weight, 0.0, where);
  return out;
}

/// @brief Summed cross entropy, in nats, of the scores x table^T: the head of a language model. Negative
/// targets do not count.
///
/// Scores have the element of `x`. 16-bit ones are sums of floats, rounded once, which moves the loss of a
/// token by at most twice the unit roundoff times its largest score; what follows is computed in float.
/// The gradient of the summed loss reaches `x` and `table` with Tape::backward, times the tape's loss scale,
/// whether its result is used or not; to only monitor it, use `cross_entropy(linear_scores(x, table),
/// targets)`.
/// @param x [..., width]
/// @param table [vocabulary, width]
/// @param targets int32 [...], sharded like the scores, except over the vocabulary
/// @throws InvalidArgument for a label smoothing outside [0, 1), and for targets of another shape or mesh;
/// DataError for a target beyond the vocabulary, which names its place; on a device, the step's report
/// throws it.
template <detail::TapeOperand X, class C, class R, class E, class Z, class T, LayoutType I, class Id>
[[nodiscard]] auto linear_cross_entropy(X&& x, Parameter<C, R, E, Z, T>& table,
                                        const ShardedTensor<I, Id, T>& targets,
                                        const CrossEntropyOptions& options = {},
                                        SourceLocation where = SourceLocation::current()) {
  // The loss computes its gradient in the memory of the scores, as nothing else reads them.
  return cross_entropy(matmul_transposed(std::forward<X>(x), table, where), targets, options, where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
