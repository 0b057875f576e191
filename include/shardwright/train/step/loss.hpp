// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Loss sums and token counts as types, so that a mean cannot be averaged again.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/train/step/loss_scale.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Whether every Partial of a layout is a sum.
template <LayoutType L>
inline constexpr bool only_sums = [] {
  for (std::size_t axis = 0; axis < L::axes.size(); ++axis)
    if (L::value.is_partial(static_cast<int>(axis)) && L::value.op(static_cast<int>(axis)) != ReduceOp::sum)
      return false;
  return true;
}();

/// The recording of a tape that a sum of losses, or a gradient, is from.
struct PassOfTape {
  static constexpr std::uint64_t several = ~std::uint64_t{0};
  std::uint64_t number = 0; ///< Of the recording; 0 if it is from none, or `several`.
  std::uint64_t losses = 0; ///< A bit for each of the first 64 losses on the tape that are in the sum.

  [[nodiscard]] bool known() const noexcept { return number != 0 && number != several; }
  void join(const PassOfTape& other) noexcept {
    if (number == 0)
      *this = other;
    else if (other.number != 0 && other.number != number)
      number = several;
    else
      losses |= other.losses;
  }
};

/// How a sum of losses came about.
struct SumOrigin {
  std::optional<LossScale> scale{}; ///< The loss scale in its gradients, if a tape or a loss knows it.
  bool counted = false;             ///< Whether a loss has counted the tokens itself, in its own layout.
  PassOfTape pass{};

  /// Adds another sum to one that is `empty` so far.
  /// @throws LifecycleError for two different scales.
  void join(const SumOrigin& other, bool empty) {
    if (scale && other.scale && *scale != *other.scale)
      reject_use(
          "LossSum: all losses of a step must have one loss scale, that of the model if it has one, but two differ (set the model's loss_scale() on every tape)");
    if (!scale)
      scale = other.scale;
    counted = (counted || empty) && other.counted;
    pass.join(other.pass);
  }
};

} // namespace detail

/// @brief This rank's part of the sum of token losses; `L` is Layout<0, Partial<Sum, axes...>> over the axes
/// whose ranks hold different tokens.
template <LayoutType L> struct LossSum {
  static_assert(L::tensor_rank == 0,
                "LossSum: its layout must be that of a scalar (use Layout<0, Partial<Sum, axes...>>)");
  static_assert(
      detail::only_sums<L>,
      "LossSum: the parts of ranks must be added, not averaged or compared (give the sum over this rank's tokens, in Layout<0, Partial<Sum, axes...>>)");
  using layout = L;
  double value = 0;
  detail::SumOrigin origin{};
};

/// @brief This rank's part of the number of tokens that count; padding does not.
template <LayoutType L> struct TokenCount {
  static_assert(L::tensor_rank == 0,
                "TokenCount: its layout must be that of a scalar (use Layout<0, Partial<Sum, axes...>>)");
  static_assert(
      detail::only_sums<L>,
      "TokenCount: the parts of ranks must be added, not averaged or compared (use Layout<0, Partial<Sum, axes...>>)");
  using layout = L;
  std::int64_t value = 0;
};

namespace detail {

template <class Loss, class Other> struct JoinedLoss {
  static_assert(
      sizeof(Other) == 0,
      "CountedLoss: a sum of losses may be added only to one over the same axes, never to a mean, a plain number or a sum over other axes (add the sum that a loss returns, and leave the division to GradAccumulator)");
};
template <class Loss, class Factor> struct ScaledLoss {
  static_assert(
      sizeof(Factor) == 0,
      "CountedLoss: a sum of losses must not be scaled, as its gradient is on the tape already and one division by the tokens of the global batch follows (pass the coefficient to the loss)");
};

} // namespace detail

/// @brief A LossSum with its TokenCount: the result of a loss on a host.
template <LayoutType L> struct CountedLoss {
  using layout = L;
  LossSum<L> loss;
  TokenCount<L> tokens;

  /// @brief The sums of both batches. @throws LifecycleError for tapes with different loss scales.
  CountedLoss& operator+=(const CountedLoss& other) {
    loss.origin.join(other.loss.origin, empty());
    loss.value += other.loss.value;
    tokens.value += other.tokens.value;
    return *this;
  }
  /// @brief Rejects anything else, and factors, with error sentences.
  template <class Other>
  requires(!std::is_base_of_v<CountedLoss, Other>) CountedLoss& operator+=(const Other&) {
    static_cast<void>(sizeof(detail::JoinedLoss<CountedLoss, Other>));
    return *this;
  }
  template <class Factor> friend CountedLoss operator*(CountedLoss counted, const Factor&) {
    static_cast<void>(sizeof(detail::ScaledLoss<CountedLoss, Factor>));
    return counted;
  }
  template <class Factor> friend CountedLoss operator*(const Factor&, CountedLoss counted) {
    static_cast<void>(sizeof(detail::ScaledLoss<CountedLoss, Factor>));
    return counted;
  }
  template <class Factor> friend CountedLoss operator/(CountedLoss counted, const Factor&) {
    static_cast<void>(sizeof(detail::ScaledLoss<CountedLoss, Factor>));
    return counted;
  }
  /// @brief Returns whether there are no tokens and no loss, as on pipeline ranks without the last stage.
  [[nodiscard]] bool empty() const noexcept { return loss.value == 0 && tokens.value == 0; }
  /// @brief Returns itself, like DeviceLoss::read on a device.
  [[nodiscard]] const CountedLoss& read() const noexcept { return *this; }
};

/// @brief A loss divided by its tokens, in nats per token; the same on every rank. For reports only.
struct MeanLoss {
  double value = 0;
};

namespace detail {

/// A model may name its loss's layout, `Model::Loss::layout`; sums that are passed on then have that layout.
template <class Model, LayoutType L> struct LossOverTokens {};
template <class Model, LayoutType L>
requires requires { typename Model::Loss::layout; }
struct LossOverTokens<Model, L> {
  static_assert(
      std::is_same_v<L, typename Model::Loss::layout>,
      "GradAccumulator: the loss must be Partial over each axis that shards the tokens, including cp where it shards sequences, and over no other (pass on the sums that the model returns: a missing axis leaves tokens out, an extra one counts each token once per copy)");
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
