// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief detach: ends a gradient.

#include <shardwright/tensor/fill.hpp>
#include <shardwright/train/tape/operation_node.hpp>
#include <shardwright/train/tape/var.hpp>

#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The value of an operand, without its gradient.
template <class X> class DetachNode final : public TapeNode, public LateGradient {
  using Value = typename X::Value;

public:
  using Out = Slot<typename Value::layout, typename X::element, typename X::target>;

  DetachNode(TapeCore& tape, X&& x) : TapeNode(tape), x_(std::move(x)), y_(*this) {
    y_.add_rows(x_.rows());
    if (tape.trains())
      x_.keep(*this, false);
  }
  void forward() override { y_.set(x_.read()); }
  void backward(GradientPass pass) override {
    if (pass == GradientPass::weight)
      return;
    x_.let_go();
    if (x_.wants_gradient())
      x_.await(*this);
  }
  /// What computes the operand waits for a gradient: if nothing else gives one, it is zero.
  void finish() override {
    if (x_.slot().has_gradient())
      return;
    const MemoryFor memory(MemoryKind::activations, "detach");
    ShardedTensor<Gradient<typename X::layout>, typename X::element, typename X::target> zero(x_.resources(),
                                                                                              x_.shape());
    fill_zero(zero);
    x_.give(std::move(zero));
  }
  [[nodiscard]] Out& result() noexcept { return y_; }

private:
  X x_;
  Out y_;
};

} // namespace detail

/// @brief The value itself, as a constant: its gradient ends here, and none flows to `x`.
///
/// If nothing else reads `x`, its gradient is zero, so that the parameters from which it is computed have
/// one, and a pipeline's previous stage gets one. No communication and no copy; that zero costs one tensor.
template <detail::TapeValue X>
[[nodiscard]] auto detach(X&& x, SourceLocation where = SourceLocation::current()) {
  detail::TapeCore& tape = x.tape();
  auto operand = detail::operand_of(std::forward<X>(x), where);
  using Node = detail::DetachNode<decltype(operand)>;
  return Var(tape.record<Node>(std::move(operand)).result());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
