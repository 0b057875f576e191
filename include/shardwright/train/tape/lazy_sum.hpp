// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Deferred sums, which are computed when they are read, so that a norm can do so in its own pass.

#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/elementwise/arithmetic.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/tape/operation_node.hpp>
#include <shardwright/train/tape/var.hpp>

#include <optional>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// y = left + right. Both are read when the sum is recorded, so that transitions run then; the addition is
/// deferred.
template <class Left, class Right>
class SumNode final : public TapeNode, public LazySum<typename Left::Value> {
  using Value = typename Left::Value;
  using Pair = typename LazySum<Value>::Pair;

public:
  using Out = Slot<typename Value::layout, typename Value::value_type, typename Value::target>;

  SumNode(TapeCore& tape, Left left, Right right)
      : TapeNode(tape), left_(std::move(left)), right_(std::move(right)), y_(*this) {
    y_.add_rows(left_.rows());
    y_.add_rows(right_.rows());
    if (tape.trains()) {
      y_.want_gradient(left_.wants_gradient() || right_.wants_gradient());
      left_.keep(*this, false);
      right_.keep(*this, false);
    }
    const MemoryFor memory(MemoryKind::activations, "sum");
    y_.expect(left_.resources(), left_.shape(), this);
    terms_.emplace(Pair{left_.read(), right_.read()});
  }

  /// Hands the terms over to the caller.
  [[nodiscard]] Pair take_terms() override {
    if (terms_)
      return *std::exchange(terms_, std::nullopt);
    Value left = left_.read();
    return {std::move(left), right_.read()};
  }

  void forward() override {
    const MemoryFor memory(MemoryKind::activations, "sum");
    auto [left, right] = take_terms();
    y_.set(sum_of(std::move(left), std::move(right)));
  }

  void backward(GradientPass pass) override {
    if (pass == GradientPass::weight)
      return;
    terms_.reset();
    const MemoryFor memory(MemoryKind::activations, "sum");
    if (y_.receive_gradient()) {
      auto gradient = y_.take_gradient();
      if (left_.wants_gradient())
        left_.give(std::remove_cv_t<decltype(gradient)>(gradient));
      if (right_.wants_gradient())
        right_.give(std::move(gradient));
    }
    left_.let_go();
    right_.let_go();
  }

  [[nodiscard]] Out& result() noexcept { return y_; }

private:
  Left left_;
  Right right_;
  Out y_;
  std::optional<Pair> terms_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The sum of two values of the same layout, computed when it is read; a norm computes it in its own
/// pass.
/// @throws InvalidArgument if the extents differ, or the values are on two tapes.
template <detail::TapeValue Left, detail::TapeValue Right>
requires std::is_same_v < typename std::remove_cvref_t<Left>::layout,
typename std::remove_cvref_t<Right>::layout > [[nodiscard]] auto apply(const Binary<operation::Add>&,
                                                                       SourceLocation where, Left&& left,
                                                                       Right&& right) {
  auto first = detail::operand_of(std::forward<Left>(left), where);
  auto second = detail::operand_of(std::forward<Right>(right), where);
  detail::TapeCore& tape = detail::tape_of("add", where, first, second);
  using detail::require_shape; // that of expert rows is found through its argument
  require_shape("add", "right operand", second.shape(), first.shape(), first.resources().core(), where);
  using Node = detail::SumNode<decltype(first), decltype(second)>;
  return Var(tape.add<Node>(std::move(first), std::move(second)).result());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
