// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The node of an operation on a tape.

#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/train/tape/operation_contract.hpp>
#include <shardwright/train/tape/parameter_operand.hpp>
#include <shardwright/train/tape/var.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// y = operation(operands...), each of which is a value on the tape or a parameter.
///
/// `Operation` has `forward(where, operands...)`, which returns a tensor, or one with a state for the
/// gradient, and takes an optional FirstPass as its last argument if it counts. Of one operand it has
/// `gradient(y_gradient, x, y)`, with the state as a fourth argument; of two, `left_gradient(y_gradient,
/// left, right)` and `right_gradient`. It declares what each reads: of the rest they get only extents. For a
/// parameter it may have `gradient_into(slot, y_gradient)` or `right_gradient_into(slot, y_gradient, left)`.
///
/// Or one call gives all gradients: `gradients(y_gradient, operands...)`, with the state, and with an
/// optional `Late<Operands...>` for parts that arrive later, before the operands. It reads these as the node
/// holds them. If such an operation `fuses_sum`, `forward_sum(left, right, operands...)` also computes a
/// deferred sum, its first operand, and returns a pair of that and its own result.
template <class Operation, class... Operands> class OperationNode final : public TapeNode {
  using Parts = PartsOf<Operation, Operands...>;
  using Result = typename Parts::Value;
  using Late = typename LateOf<Operation, Operands...>::type;
  using Indices = std::index_sequence_for<Operands...>;
  static constexpr std::size_t count = sizeof...(Operands);
  static constexpr std::array<GradientReads, count> reads = gradient_reads_of<Operation, count>;
  static constexpr bool together = GivesTogether<Operation>;
  static constexpr unsigned all = (1u << count) - 1;
  /// The operands whose gradients the pass of weights computes.
  static constexpr unsigned weights = [] {
    unsigned out = 0, bit = 1;
    ((out |= Operands::is_parameter && !Operands::is_frozen && !together ? bit : 0, bit <<= 1), ...);
    return out;
  }();

public:
  using Out = Slot<typename Result::layout, typename Result::value_type, typename Result::target>;

  OperationNode(TapeCore& tape, const Operation& operation, SourceLocation where, Operands&&... operands)
      : TapeNode(tape), operation_(operation), where_(where), operands_(std::move(operands)...), y_(*this) {
    each([&]<class Operand>(std::size_t, const Operand& operand) {
      if constexpr (!Operand::is_parameter)
        y_.add_rows(operand.rows());
    });
    if (!tape.trains())
      return;
    each([&](std::size_t i, auto& operand) {
      operand.note_use(tape);
      due_ |= operand.wants_gradient() ? 1u << i : 0;
    });
    y_.want_gradient(due_ != 0);
    each([&](std::size_t i, auto& operand) { operand.keep(*this, reads_operand(i)); });
    if (reads_result())
      y_.keep();
  }

  void forward() override {
    const MemoryFor memory(MemoryKind::activations, name_of_operation<Operation>);
    forward(Indices{});
  }

  void backward(GradientPass pass) override {
    if constexpr (!((Operands::is_parameter && !Operands::is_frozen) || ...))
      if (pass == GradientPass::weight)
        return;
    const MemoryFor memory(MemoryKind::activations, name_of_operation<Operation>);
    const unsigned now = pass == GradientPass::both     ? all
                         : pass == GradientPass::weight ? weights
                                                        : all & ~weights;
    if (y_.receive_gradient()) {
      // Weights first: memory that only they read can be reused for the gradients of inputs.
      give_gradients(now & weights, Indices{});
      give_gradients(now & ~weights, Indices{});
    } else {
      due_ &= ~now;
    }
    if (due_ == 0)
      let_go();
    else // a later pass reads these: their sources may be released
      each([this](std::size_t i, auto& operand) {
        if (reads_operand(i))
          operand.secure();
      });
    if (pass != GradientPass::input)
      each([](std::size_t, auto& operand) { operand.end_pass(); });
  }

  [[nodiscard]] Out& result() noexcept { return y_; }

private:
  // Not std::apply, whose instantiations take long to compile.
  template <class Visit> void each(const Visit& visit) { each(visit, Indices{}); }
  template <class Visit, std::size_t... i> void each(const Visit& visit, std::index_sequence<i...>) {
    (visit(i, std::get<i>(operands_)), ...);
  }
  template <std::size_t... i> void forward(std::index_sequence<i...>) { compute(std::get<i>(operands_)...); }
  /// Whether a gradient that is still due reads an operand.
  [[nodiscard]] bool reads_operand(std::size_t index) const noexcept {
    for (std::size_t i = 0; i < count; ++i)
      if ((due_ & 1u << i) != 0 && reads[i].operand(index))
        return true;
    return false;
  }
  [[nodiscard]] bool reads_result() const noexcept {
    for (std::size_t i = 0; i < count; ++i)
      if ((due_ & 1u << i) != 0 && reads[i].result)
        return true;
    return false;
  }

  template <class First, class... Rest> void compute(First& first, Rest&... rest) {
    [[maybe_unused]] const auto readings = std::tuple{first.reading(), rest.reading()...};
    if constexpr (requires { requires Operation::fuses_sum && First::in_own_layout; })
      if (auto* const sum = first.sum()) {
        auto [left, right] = sum->take_terms();
        auto [total, made] = operation_->forward_sum(std::move(left), std::move(right), rest.read()...);
        first.slot().set(std::move(total));
        static_cast<void>(first.read());
        set_result(std::move(made));
        return;
      }
    set_result(forward_of(*operation_, where_, tape().first_pass(), first.read(), rest.read()...));
  }
  template <class Made> void set_result(Made&& made) {
    if constexpr (Parts::has_state) {
      if (y_.wants_gradient() && (tape().replays() || !recomputes()))
        state_.emplace(std::move(made.state));
      y_.set(std::move(made.value));
    } else {
      y_.set(std::move(made));
    }
  }

  template <std::size_t... i> void give_gradients(unsigned sides, std::index_sequence<i...> indices) {
    sides &= due_;
    if constexpr (Parts::has_state)
      if (sides != 0 && !state_)
        y_.compute_again();
    if constexpr (any_invalid<typename Result::layout>) { // after the error sentence
    } else if constexpr (!together) {
      ((sides & 1u << i ? give_gradient<i>(indices) : void()), ...);
    } else if (sides != 0) {
      [[maybe_unused]] const auto readings = std::tuple{std::get<i>(operands_).reading()...};
      due_ = 0;
      if constexpr (Parts::has_state)
        operation_->gradients(y_.take_gradient(), *state_, std::get<i>(operands_)...);
      else if constexpr (std::is_same_v<Late, NothingLate>)
        operation_->gradients(y_.take_gradient(), std::get<i>(operands_)...);
      else
        operation_->gradients(y_.take_gradient(), late_, std::get<i>(operands_)...);
    }
  }
  template <std::size_t side, std::size_t... i>
  requires(std::tuple_element_t<side, std::tuple<Operands...>>::is_frozen) void give_gradient(
      std::index_sequence<i...>) {} // never due
  template <std::size_t side, std::size_t... i> void give_gradient(std::index_sequence<i...>) {
    [[maybe_unused]] const auto readings =
        std::tuple{std::get<i>(operands_).template reading<reads[side].operand(i)>()...};
    std::tuple<typename Operands::Value...> values{
        value_of<reads[side].operand(i)>(std::get<i>(operands_))...};
    due_ &= ~(1u << side);
    const auto let_go = [this](std::size_t index, auto& operand) {
      if (!reads_operand(index))
        operand.let_go();
    };
    if constexpr (count > 1) {
      each(let_go);
      give<side>(due_ == 0 ? y_.take_gradient() : y_.gradient(), std::move(std::get<i>(values))...);
    } else {
      auto y = reads[side].result ? y_.value() : y_.outline();
      each(let_go);
      y_.let_go();
      if constexpr (Parts::has_state)
        give<side>(y_.take_gradient(), std::move(std::get<i>(values))..., std::move(y), std::move(*state_));
      else
        give<side>(y_.take_gradient(), std::move(std::get<i>(values))..., std::move(y));
    }
  }
  template <std::size_t side, class G, class First, class... Rest>
  void give(G gradient, First&& first, Rest&&... rest) {
    using Given = typename decltype(type_of_gradient<side, count, Operation, G, First, Rest...>())::type;
    using To = std::tuple_element_t<side, std::tuple<Operands...>>;
    To& to = std::get<side>(operands_);
    // Generic, so that it is compiled only where it is called.
    const auto compute_gradient = [&](auto&& with) {
      return gradient_of<side, count>(*operation_, std::move(with), std::forward<First>(first),
                                      std::forward<Rest>(rest)...);
    };
    if constexpr (!To::is_parameter) {
      to.give(compute_gradient(gradient));
    } else if constexpr (To::template takes<typename Given::layout>()) {
      if constexpr (count == 1 && requires { operation_->gradient_into(to.slot(), gradient); })
        operation_->gradient_into(to.slot(), gradient);
      else if constexpr (side == 1 &&
                         requires { operation_->right_gradient_into(to.slot(), gradient, first); })
        operation_->right_gradient_into(to.slot(), gradient, first);
      else
        to.give(compute_gradient(gradient));
    }
  }
  template <bool reads_it, class Operand>
  [[nodiscard]] static typename Operand::Value value_of(Operand& operand) {
    if constexpr (reads_it)
      return operand.read();
    else
      return operand.outline();
  }
  /// Releases what only gradients need.
  void let_go() {
    each([](std::size_t, auto& operand) { operand.let_go(); });
    y_.let_go();
    y_.drop_gradient();
    state_.reset();
    operation_.reset();
  }

  std::optional<Operation> operation_; // until all gradients have been computed: it may hold tensors
  SourceLocation where_;
  std::tuple<Operands...> operands_;
  Out y_;
  std::optional<typename Parts::State> state_;
  [[no_unique_address]] std::conditional_t<std::is_same_v<Late, NothingLate>, Late, std::optional<Late>>
      late_;
  unsigned due_ = 0; ///< The operands whose gradients have not been computed.
};

/// The first operand that is a value on a tape.
template <class First, class... Rest>
[[nodiscard]] const auto& first_value(const First& first, const Rest&... rest) {
  if constexpr (First::is_parameter && sizeof...(Rest) > 0)
    return first_value(rest...);
  else
    return first;
}

/// The tape of operands, at least one of which is a value on it.
/// @throws InvalidArgument if they are on different tapes.
template <class... Operands>
[[nodiscard]] TapeCore& tape_of(std::string_view operation, SourceLocation where,
                                const Operands&... operands) {
  const auto& first = first_value(operands...);
  const auto require_same = [&]<class Operand>(const Operand& operand) {
    if constexpr (!Operand::is_parameter)
      if (&operand.tape() != &first.tape()) // whose passes know nothing of each other
        reject_operation(std::string(operation).c_str(),
                         "both operands must be on one tape (read the other as data: its value())",
                         first.resources().core(), where);
  };
  (require_same(operands), ...);
  return first.tape();
}

/// Compares the numbers of an operation on a tape that checks its inputs.
template <class Operation, class X>
void compare_numbers_on(const TapeCore& tape, const Operation& operation, const X& operand,
                        SourceLocation where) {
  if constexpr (HasNumbers<Operation>)
    if (tape.checks_inputs())
      compare_numbers<typename X::layout>(operation, operand.resources().core(), where);
}

/// Stands for a result where the compiler has rejected the operation.
template <class Result> [[noreturn]] Result after_error();

/// Records an operation on operands as its node holds them.
template <class Operation, class... Operands>
[[nodiscard]] auto record_on(TapeCore& tape, const Operation& operation, SourceLocation where,
                             Operands&&... operands) {
  compare_numbers_on(tape, operation, first_value(operands...), where);
  using Node = OperationNode<Operation, Operands...>;
  using Result = typename PartsOf<Operation, Operands...>::Value;
  using Out = Var<typename Result::layout, typename Result::value_type, typename Result::target>;
  if constexpr (records<Operation, Operands...>())
    return Out(tape.record<Node>(operation, where, std::move(operands)...).result());
  else
    return after_error<Out>();
}

/// The same on their tape.
template <class Operation, class Operands, std::size_t... i>
[[nodiscard]] auto record(const Operation& operation, SourceLocation where, Operands&& operands,
                          std::index_sequence<i...>) {
  TapeCore& tape = tape_of(name_of_operation<Operation>, where, std::get<i>(operands)...);
  return record_on(tape, operation, where, std::move(std::get<i>(operands))...);
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

/// @brief Executes an operation and records it on the tape of its operands, of which all but one may be
/// parameters.
/// @throws InvalidArgument if operands are values on different tapes.
template <class Operation, detail::TapeOperand... Operands>
requires(sizeof...(Operands) > 0)
    [[nodiscard]] auto apply(const Operation& operation, SourceLocation where, Operands&&... operands) {
  // In this order: the same value may be given twice, and moved in the second time.
  return detail::record(operation, where,
                        std::tuple{detail::operand_of(std::forward<Operands>(operands), where)...},
                        std::index_sequence_for<Operands...>{});
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
