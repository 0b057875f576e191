// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Norms on a tape, fused with the sum that they read and, backward, with the gradient of the residual
/// branch.

#include <shardwright/train/tape/lazy_sum.hpp>
#include <shardwright/train/tape/operation_node.hpp>
#include <shardwright/train/tape/parameter_operand.hpp>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// y = norm(x) with gains and biases. Their gradients are computed in the input pass, together with that of
/// x.
///
/// `Norm` has `WeightGradient<X>`, the layout of its weights' gradients, `forward(x, weights...)`, which
/// returns a NormOutput, `forward_sum(left, right, weights...)`, which returns an AddNormOutput, and
/// `gradient(y_gradient, x, statistics, stream, weights, slots)`, where `stream` points to the other
/// gradients of x, or is null.
template <class Norm, class X, class... Weights> class NormNode final : public TapeNode {
  using Result = decltype(std::declval<const Norm&>().forward(std::declval<typename X::Value>(),
                                                              std::declval<typename Weights::Value>()...));
  using Normed = decltype(Result::normed);
  static constexpr bool fits =
      (Weights::template takes<typename Norm::template WeightGradient<typename X::layout>>() && ...);

public:
  using Out = Slot<typename Normed::layout, typename Normed::value_type, typename Normed::target>;

  NormNode(TapeCore& tape, const Norm& norm, X x, Weights... weights)
      : TapeNode(tape), norm_(norm), x_(std::move(x)), weights_(std::move(weights)...), y_(*this) {
    if (!tape.trains())
      return;
    std::apply([&tape](auto&... weight) { (weight.note_use(tape), ...); }, weights_);
    y_.want_gradient(true);
    x_.keep(*this, true);
  }

  void forward() override {
    const MemoryFor memory(MemoryKind::activations, "norm");
    std::apply(
        [this](auto&... weight) {
          [[maybe_unused]] const auto readings = std::tuple{weight.reading()...};
          if constexpr (X::in_own_layout)
            if (auto* const sum = x_.sum()) {
              auto [left, right] = sum->take_terms();
              auto made = norm_.forward_sum(std::move(left), std::move(right), weight.read()...);
              x_.slot().set(std::move(made.sum));
              static_cast<void>(x_.read());
              finish_forward(std::move(made));
              return;
            }
          finish_forward(norm_.forward(x_.read(), weight.read()...));
        },
        weights_);
  }

  void backward(GradientPass pass) override {
    if (pass != GradientPass::weight) {
      const MemoryFor memory(MemoryKind::activations, "norm");
      if constexpr (fits)
        if (y_.receive_gradient())
          give_gradient();
      x_.let_go();
    }
    if (pass != GradientPass::input)
      std::apply([](auto&... weight) { (weight.end_pass(), ...); }, weights_);
  }

  [[nodiscard]] Out& result() noexcept { return y_; }

private:
  template <class Made> void finish_forward(Made&& made) {
    if (tape().trains() && (tape().replays() || !recomputes()))
      statistics_.emplace(std::move(made.statistics));
    y_.set(std::move(made.normed));
  }

  void give_gradient() {
    if (!statistics_)
      y_.compute_again();
    const auto x = x_.read();
    x_.let_go();
    std::apply(
        [&](auto&... weight) {
          [[maybe_unused]] const auto readings = std::tuple{weight.reading()...};
          auto stream = x_.take_gradient();
          auto gradient = norm_.gradient(y_.take_gradient(), x, *statistics_, stream ? &*stream : nullptr,
                                         weight.read()..., weight.slot()...);
          stream.reset();
          if (x_.wants_gradient())
            x_.give(std::move(gradient));
        },
        weights_);
    statistics_.reset();
  }

  Norm norm_;
  X x_;
  std::tuple<Weights...> weights_;
  Out y_;
  std::optional<decltype(Result::statistics)> statistics_;
};

/// The norm of an operand, on its tape.
template <class Norm, class X, class... Weights>
[[nodiscard]] auto record_norm(const Norm& norm, SourceLocation where, X x, Weights... weights) {
  using Node = NormNode<Norm, X, Weights...>;
  TapeCore& tape = x.tape();
  compare_numbers_on(tape, norm, x, where);
  return Var(tape.record<Node>(norm, std::move(x), std::move(weights)...).result());
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
