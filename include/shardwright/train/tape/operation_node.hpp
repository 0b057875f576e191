// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Nodes of operations with one and two operands on a tape.

#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/train/tape/operation_contract.hpp>
#include <shardwright/train/tape/parameter_operand.hpp>
#include <shardwright/train/tape/var.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// y = operation(x).
///
/// `Operation` has `forward(where, x)`, which returns a tensor, or one with a state, and takes a third
/// argument, an optional FirstPass, if it counts; `gradient(y_gradient, x, y)`, with the state as a fourth
/// argument; and it declares which of x and y the gradient reads: for the others it gets only extents.
template <class Operation, class X> class UnaryNode final : public TapeNode {
  using Parts = ResultParts<ForwardOf<Operation, X>>;
  using Result = typename Parts::Value;
  static constexpr bool reads_x = Operation::gradient_reads_input;
  static constexpr bool reads_y = Operation::gradient_reads_output;

public:
  using Out = Slot<typename Result::layout, typename Result::value_type, typename Result::target>;

  UnaryNode(TapeCore& tape, const Operation& operation, SourceLocation where, X x)
      : TapeNode(tape), operation_(operation), where_(where), x_(std::move(x)), y_(*this) {
    if (!tape.trains())
      return;
    y_.want_gradient(x_.wants_gradient());
    x_.keep(*this, reads_x && y_.wants_gradient());
    if (reads_y && y_.wants_gradient())
      y_.keep();
  }

  void forward() override {
    const MemoryFor memory(MemoryKind::activations, name_of_operation<Operation>);
    if constexpr (Parts::has_state) {
      auto made = forward_of(operation_, where_, tape().first_pass(), x_.read());
      if (y_.wants_gradient() && (tape().replays() || !recomputes()))
        state_.emplace(std::move(made.state));
      y_.set(std::move(made.value));
    } else {
      y_.set(forward_of(operation_, where_, tape().first_pass(), x_.read()));
    }
  }

  void backward(GradientPass pass) override {
    if (pass == GradientPass::weight)
      return;
    const MemoryFor memory(MemoryKind::activations, name_of_operation<Operation>);
    if (y_.receive_gradient())
      give_gradient();
    x_.let_go();
    y_.let_go();
  }

  [[nodiscard]] Out& result() noexcept { return y_; }

private:
  void give_gradient() {
    if (Parts::has_state && !state_)
      static_cast<void>(y_.compute_again());
    auto x = reads_x ? x_.read() : x_.outline();
    auto y = reads_y ? y_.value() : y_.outline();
    x_.let_go();
    y_.let_go();
    if constexpr (Parts::has_state)
      x_.give(operation_.gradient(y_.take_gradient(), std::move(x), std::move(y),
                                  *std::exchange(state_, std::nullopt)));
    else
      x_.give(operation_.gradient(y_.take_gradient(), std::move(x), std::move(y)));
  }

  Operation operation_;
  SourceLocation where_;
  X x_;
  Out y_;
  std::optional<typename Parts::State> state_;
};

/// y = operation(left, right), where an operand may be a parameter.
///
/// `Operation` has `forward(where, left, right)`, `left_gradient(y_gradient, left, right)`,
/// `right_gradient(...)`, and says what these read. For a parameter it may have `right_gradient_into(slot,
/// y_gradient, left)`.
template <class Operation, class Left, class Right> class BinaryNode final : public TapeNode {
  using Result = ForwardOf<Operation, Left, Right>;
  static constexpr unsigned left_side = 1;
  static constexpr unsigned right_side = 2;

public:
  using Out = Slot<typename Result::layout, typename Result::value_type, typename Result::target>;

  BinaryNode(TapeCore& tape, const Operation& operation, SourceLocation where, Left left, Right right)
      : TapeNode(tape), operation_(operation), where_(where), left_(std::move(left)),
        right_(std::move(right)), y_(*this) {
    if (!tape.trains())
      return;
    left_.note_use(tape);
    right_.note_use(tape);
    due_ = (left_.wants_gradient() ? left_side : 0) | (right_.wants_gradient() ? right_side : 0);
    y_.want_gradient(due_ != 0);
    left_.keep(*this, reads_left());
    right_.keep(*this, reads_right());
  }

  void forward() override {
    const MemoryFor memory(MemoryKind::activations, name_of_operation<Operation>);
    [[maybe_unused]] const auto left_reading = left_.reading();
    [[maybe_unused]] const auto right_reading = right_.reading();
    y_.set(operation_.forward(where_, left_.read(), right_.read()));
  }

  void backward(GradientPass pass) override {
    const MemoryFor memory(MemoryKind::activations, name_of_operation<Operation>);
    const unsigned parameters = (Left::is_parameter ? left_side : 0) | (Right::is_parameter ? right_side : 0);
    const unsigned now = pass == GradientPass::both     ? left_side | right_side
                         : pass == GradientPass::weight ? parameters
                                                        : ~parameters;
    if (y_.receive_gradient()) {
      // Weights first: memory that only they read can be reused for the gradients of inputs.
      for (const unsigned sides : {now & parameters & due_, now & ~parameters & due_}) {
        if ((sides & left_side) != 0)
          give_gradient<left_side>();
        if ((sides & right_side) != 0)
          give_gradient<right_side>();
      }
    } else {
      due_ &= ~now;
    }
    if (due_ == 0) {
      left_.let_go();
      right_.let_go();
      y_.drop_gradient();
    } else { // a later pass reads these: their sources may be released
      if (reads_left())
        left_.secure();
      if (reads_right())
        right_.secure();
    }
    if (pass != GradientPass::input) {
      left_.end_pass();
      right_.end_pass();
    }
  }

  [[nodiscard]] Out& result() noexcept { return y_; }

private:
  [[nodiscard]] bool reads_left() const noexcept {
    return ((due_ & left_side) != 0 && Operation::left_gradient_reads.left) ||
           ((due_ & right_side) != 0 && Operation::right_gradient_reads.left);
  }
  [[nodiscard]] bool reads_right() const noexcept {
    return ((due_ & left_side) != 0 && Operation::left_gradient_reads.right) ||
           ((due_ & right_side) != 0 && Operation::right_gradient_reads.right);
  }

  template <unsigned side> void give_gradient() {
    constexpr bool is_left = side == left_side;
    constexpr GradientReads reads =
        is_left ? Operation::left_gradient_reads : Operation::right_gradient_reads;
    [[maybe_unused]] const auto left_reading = left_.template reading<reads.left>();
    [[maybe_unused]] const auto right_reading = right_.template reading<reads.right>();
    auto left = value_of<reads.left>(left_);
    auto right = value_of<reads.right>(right_);
    due_ &= ~side;
    if (!reads_left())
      left_.let_go();
    if (!reads_right())
      right_.let_go();
    auto gradient = due_ == 0 ? y_.take_gradient() : y_.gradient();
    if constexpr (is_left)
      left_.give(operation_.left_gradient(std::move(gradient), std::move(left), std::move(right)));
    else if constexpr (Right::is_parameter &&
                       requires { operation_.right_gradient_into(right_.slot(), gradient, left); }) {
      using Raw = decltype(operation_.right_gradient(std::move(gradient), std::move(left), std::move(right)));
      if constexpr (Right::template takes<typename Raw::layout>())
        operation_.right_gradient_into(right_.slot(), gradient, left);
    } else
      right_.give(operation_.right_gradient(std::move(gradient), std::move(left), std::move(right)));
  }
  template <bool reads, class Operand>
  [[nodiscard]] static typename Operand::Value value_of(Operand& operand) {
    if constexpr (reads)
      return operand.read();
    else
      return operand.outline();
  }

  Operation operation_;
  SourceLocation where_;
  Left left_;
  Right right_;
  Out y_;
  unsigned due_ = 0;
};

/// The tape of two operands, at least one of which is a value on it.
/// @throws InvalidArgument if they are on different tapes.
template <class Left, class Right>
[[nodiscard]] TapeCore& tape_of(std::string_view operation, const Left& left, const Right& right,
                                SourceLocation where) {
  if constexpr (Left::is_parameter) {
    return right.tape();
  } else {
    if constexpr (!Right::is_parameter)
      if (&left.tape() != &right.tape()) // whose passes know nothing of each other
        reject_operation(std::string(operation).c_str(),
                         "both operands must be on one tape (read the other as data: its value())",
                         left.resources().core(), where);
    return left.tape();
  }
}

/// Compares the numbers of an operation on a tape that checks its inputs.
template <class Operation, class X>
void compare_numbers_on(const TapeCore& tape, const Operation& operation, const X& operand,
                        SourceLocation where) {
  if constexpr (HasNumbers<Operation>)
    if (tape.checks_inputs())
      compare_numbers<typename X::layout>(operation, operand.resources().core(), where);
}

template <class Type>
concept TapeOperand = requires {
  typename std::remove_cvref_t<Type>::tape_operand;
};

/// A value on a tape, in a layout, but not a parameter.
template <class Type>
concept TapeValue = TapeOperand<Type> && requires(const std::remove_cvref_t<Type>& value) {
  value.tape();
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Executes an operation and records it on the tape of its operand.
template <class Operation, detail::TapeOperand X>
[[nodiscard]] auto apply(const Operation& operation, SourceLocation where, X&& x) {
  auto operand = detail::operand_of(std::forward<X>(x), where);
  detail::TapeCore& tape = operand.tape();
  detail::compare_numbers_on(tape, operation, operand, where);
  if constexpr (detail::records<Operation, decltype(operand)>()) {
    using Node = detail::UnaryNode<Operation, decltype(operand)>;
    return Var(tape.record<Node>(operation, where, std::move(operand)).result());
  } else { // after the error sentence
    return as_var(x, where);
  }
}
/// @brief The same for two operands, one of which may be a parameter.
/// @throws InvalidArgument if both are values, on different tapes.
template <class Operation, detail::TapeOperand Left, detail::TapeOperand Right>
[[nodiscard]] auto apply(const Operation& operation, SourceLocation where, Left&& left, Right&& right) {
  auto first = detail::operand_of(std::forward<Left>(left), where);
  auto second = detail::operand_of(std::forward<Right>(right), where);
  detail::TapeCore& tape = detail::tape_of(detail::name_of_operation<Operation>, first, second, where);
  if constexpr (decltype(first)::is_parameter)
    detail::compare_numbers_on(tape, operation, second, where);
  else
    detail::compare_numbers_on(tape, operation, first, where);
  if constexpr (detail::records<Operation, decltype(first), decltype(second)>()) {
    using Node = detail::BinaryNode<Operation, decltype(first), decltype(second)>;
    return Var(tape.record<Node>(operation, where, std::move(first), std::move(second)).result());
  } else { // after the error sentence
    return as_var(left, where);
  }
}

namespace operation {

/// @brief The value itself.
struct Identity {
  static constexpr std::string_view name = "transition";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  template <AnyShardedTensor X> [[nodiscard]] X forward(SourceLocation, X x) const { return x; }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] G gradient(G gradient, const X&, const Y&) const {
    return gradient;
  }
};

} // namespace operation

/// @brief Returns an operand of an operation as a Var: a Var itself, or the value in the layout in which it
/// is read.
template <LayoutType L, class Element, class Target>
[[nodiscard]] Var<L, Element, Target> as_var(Var<L, Element, Target> value,
                                             SourceLocation = SourceLocation::current()) {
  return value;
}
template <LayoutType From, LayoutType To, class Element, class Target>
[[nodiscard]] auto as_var(detail::Edge<From, To, Element, Target> edge,
                          SourceLocation where = SourceLocation::current()) {
  return apply(operation::Identity{}, where, std::move(edge));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
