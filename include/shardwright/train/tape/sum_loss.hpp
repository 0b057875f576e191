// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief sum_loss: a scalar value on a tape as the loss of a model.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/describe.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/memory/device_value.hpp>
#include <shardwright/tensor/memory/scalars.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/step/device_loss.hpp>
#include <shardwright/train/step/loss.hpp>
#include <shardwright/train/step/loss_axes.hpp>
#include <shardwright/train/step/loss_scale.hpp>
#include <shardwright/train/tape/loss_node.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A value that can be the loss of tokens counted in layout `L`.
template <class Value, class L> struct SumLossOf {
  static_assert(
      !is_reproducible<typename Value::target>,
      "sum_loss: on a Reproducible target a loss must be summed by the library, as only then its bits do not depend on the mesh (use cross_entropy or linear_cross_entropy, or a target that is not Reproducible)");
  static constexpr bool scalar = Value::tensor_rank == 0;
  static constexpr bool over_tokens = std::is_same_v<typename Value::layout, L>;
  static_assert(scalar, "sum_loss: the loss must be one number (reduce it with sum)");
  static_assert(
      !scalar || over_tokens,
      "sum_loss: the loss must be Partial over each axis that shards the tokens, and over no other (read it with .as<L>() of the TokenCount's layout, which reduces over the axes of the model)");
  static constexpr bool value = scalar && over_tokens;
};

/// A count of one rank's tokens must not stand for those of all: no axis that splits the inputs may be
/// missing.
template <LayoutType L>
void require_counted_over(RowAxes rows, const TokenCount<L>& tokens, const MeshCore& core,
                          SourceLocation where) {
  const int axis = rows.first_beyond(core, L::axes);
  if (axis >= 0 && tokens.value != 0)
    reject_uncounted(
        "sum_loss", core.name(axis),
        "whose " + std::to_string(core.extent(axis)) + " ranks have different rows of the tape's inputs",
        LayoutText<L>::value,
        "the " + std::to_string(tokens.value) + " tokens of rank " + std::to_string(core.world().rank()),
        "pass assume_replicated(tokens) if the program has reduced the count", core, where);
}

/// to = the number and its count.
template <class Element> struct StoreLoss {
  const Element* number;
  double count;
  double* to;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    to[0] = static_cast<double>(*number);
    to[1] = count;
  }
};
/// to = the loss scale.
template <class Element> struct StoreScale {
  kernels::LossFactor factor;
  Element* to;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    *to = static_cast<Element>(static_cast<AccumulationElement<Element>>(factor.value()));
  }
};

} // namespace detail

namespace operation {

/// @brief A scalar with its number of tokens; its gradient is the loss scale.
template <LayoutType L> struct SumLoss {
  static constexpr std::string_view name = "sum_loss";
  static constexpr auto differs_along = L::axes;
  TokenCount<L> tokens;
  bool assumed = false; ///< Whether the program says that `tokens` counts all ranks along other axes.

  [[nodiscard]] std::array<GivenNumber, 1> numbers() const {
    return {GivenNumber("number of tokens", tokens.value)};
  }

  template <AnyShardedTensor X> [[nodiscard]] auto loss(SourceLocation, const X& x) const {
    using Target = typename X::target;
    detail::Scalars<2, Target> totals(x.resources());
    detail::run_once("sw::sum_loss", x.execution(),
                     detail::StoreLoss<typename X::value_type>{x.data(), static_cast<double>(tokens.value),
                                                               totals.view().data()});
    auto sums = detail::counted_loss<L>(std::move(totals));
    detail::origin_of(sums).counted = assumed; // or else by the program
    return sums;
  }
  template <AnyShardedTensor X>
  [[nodiscard]] auto loss_and_gradient(SourceLocation where, const X& x, const LossScale& scale) const {
    using Element = typename X::value_type;
    using Target = typename X::target;
    ShardedTensor<Layout<0>, Element, Target> gradient(x.resources(), {});
    detail::run_once("sw::d_sum_loss", gradient.execution(),
                     detail::StoreScale<Element>{scale.in_kernels(), gradient.mutable_data()});
    return std::pair{loss(where, x), std::move(gradient)};
  }
};

} // namespace operation

namespace detail {

template <class X, LayoutType L>
[[nodiscard]] auto record_sum_loss(X&& loss, const operation::SumLoss<L>& operation, SourceLocation where) {
  using Value = std::remove_cvref_t<X>;
  if constexpr (SumLossOf<Value, L>::value) {
    auto operand = operand_of(std::forward<X>(loss), where);
    if (!operation.assumed)
      require_counted_over(operand.rows(), operation.tokens, operand.resources().core(), where);
    return record_loss_on(operation, where, std::move(operand));
  } else {
    return CountedLossOn<L, typename Value::target>{};
  }
}

} // namespace detail

/// @brief A scalar on a tape as a loss: the sum over this rank's tokens, and their number.
///
/// Tape::backward starts from the gradient of the summed loss, 1 times the tape's loss scale, whether the
/// result is used or not (to only monitor it, use `loss.value()`); a GradAccumulator divides once by the
/// global number of tokens. On a host it waits for the number.
/// @param loss Layout<0, Partial<Sum, axes...>> over the axes that shard the tokens
/// @param tokens this rank's, in that layout; as assume_replicated(tokens), those of all ranks along the
/// other axes
/// @throws InvalidArgument without assume_replicated, if the loss was reduced over an axis that splits the
/// inputs of the tape from which it is computed.
template <detail::TapeOperand X, LayoutType L>
[[nodiscard]] auto sum_loss(X&& loss, TokenCount<L> tokens,
                            SourceLocation where = SourceLocation::current()) {
  return detail::record_sum_loss(std::forward<X>(loss), operation::SumLoss<L>{tokens}, where);
}
template <detail::TapeOperand X, LayoutType L>
[[nodiscard]] auto sum_loss(X&& loss, const AssumedReplicated<TokenCount<L>>& tokens,
                            SourceLocation where = SourceLocation::current()) {
  return detail::record_sum_loss(std::forward<X>(loss), operation::SumLoss<L>{tokens.sums, true}, where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
