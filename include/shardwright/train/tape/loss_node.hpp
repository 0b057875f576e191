// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Losses on a tape, where the backward pass begins.

#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A loss `Operation` on x: its sums, and the gradient with which the backward pass begins.
///
/// `Operation` has `loss(where, x)`, which returns the sums, and `loss_and_gradient(where, x, loss_scale)`,
/// which returns a pair: the sums, and the gradient of the summed loss times the scale. Without `loss`, it is
/// computed only in the backward pass.
template <class Operation, class X> class LossNode final : public TapeNode {
  using Made = decltype(std::declval<const Operation&>().loss_and_gradient(
      SourceLocation{}, std::declval<typename X::Value>(), std::declval<const LossScale&>()));
  static constexpr bool at_once = requires(const Operation& operation, const typename X::Value& x) {
    operation.loss(SourceLocation{}, x);
  };

public:
  using Loss = typename Made::first_type;

  LossNode(TapeCore& tape, Operation operation, SourceLocation where, X x)
      : TapeNode(tape), operation_(std::move(operation)), where_(where), x_(std::move(x)) {
    if (tape.trains())
      x_.keep(*this, !at_once);
  }

  void forward() override {
    const MemoryFor memory(MemoryKind::activations, name_of_operation<Operation>);
    if (tape().replays() || (at_once && x_.wants_gradient() && tape().trains() && !recomputes())) {
      auto [loss, gradient] = operation_->loss_and_gradient(where_, x_.read_last(), tape().loss_scale());
      loss_ = std::move(loss);
      gradient_.emplace(std::move(gradient));
    } else if constexpr (at_once) {
      loss_ = operation_->loss(where_, x_.read());
    } else {
      static_cast<void>(x_.read()); // so that transitions run now
    }
  }
  void backward(GradientPass pass) override {
    if (pass == GradientPass::weight)
      return;
    const MemoryFor memory(MemoryKind::activations, name_of_operation<Operation>);
    if (!gradient_ && (x_.wants_gradient() || !at_once))
      forward();
    x_.let_go();
    if (x_.wants_gradient())
      x_.give(std::move(*gradient_));
    gradient_.reset();
    operation_.reset();
  }

  /// The sums of the first pass.
  [[nodiscard]] Loss take_loss() { return std::move(loss_); }

private:
  std::optional<Operation> operation_; // until the gradient has been computed: it may hold tensors
  SourceLocation where_;
  X x_;
  Loss loss_{};
  std::optional<typename Made::second_type> gradient_;
};

/// The sums of a loss on a tape, with the loss scale that their gradients will contain.
template <class Sums> [[nodiscard]] Sums on_tape(Sums sums, TapeCore& tape) {
  origin_of(sums).pass = {tape.number(), tape.next_loss()};
  if (tape.trains())
    origin_of(sums).scale = tape.loss_scale();
  return sums;
}

/// Records a loss on an operand as its node holds it, and returns its sums.
template <class Operation, class X>
[[nodiscard]] auto record_loss_on(Operation operation, SourceLocation where, X&& operand) {
  TapeCore& tape = operand.tape();
  compare_numbers_on(tape, operation, operand, where);
  using Node = LossNode<Operation, X>;
  return on_tape(tape.record<Node>(std::move(operation), where, std::move(operand)).take_loss(), tape);
}
/// The same on a value of the tape.
template <class Operation, TapeOperand X>
[[nodiscard]] auto record_loss(Operation operation, SourceLocation where, X&& x) {
  return record_loss_on(std::move(operation), where, operand_of(std::forward<X>(x), where));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
