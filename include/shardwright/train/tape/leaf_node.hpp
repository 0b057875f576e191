// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Nodes of values that are not results of operations: data, and variables.

#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/tape/core.hpp>
#include <shardwright/train/tape/var.hpp>

#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A value that is not the result of an operation.
template <class L, class Element, class Target> class LeafNode final : public TapeNode {
public:
  LeafNode(TapeCore& tape, ShardedTensor<L, const Element, Target>&& value, bool wants_gradient)
      : TapeNode(tape), slot_(*this) {
    slot_.set(std::move(value));
    slot_.want_gradient(wants_gradient);
    if (recomputes()) // nothing can recompute it
      slot_.keep_always();
  }
  void forward() override {}
  void backward(GradientPass pass) override {
    if (pass != GradientPass::weight)
      static_cast<void>(slot_.receive_gradient());
  }
  [[nodiscard]] Slot<L, Element, Target>& result() noexcept { return slot_; }

private:
  Slot<L, Element, Target> slot_;
};

/// A tensor on a tape. Data without a gradient is compared between ranks.
template <LayoutType L, class E, class Target>
[[nodiscard]] auto leaf_on(TapeCore& tape, ShardedTensor<L, E, Target>&& tensor, bool wants_gradient,
                           SourceLocation where) {
  if (tape.checks_inputs() && !wants_gradient)
    require_equal_inputs(tensor, where);
  using Element = std::remove_const_t<E>;
  using Handle = ShardedTensor<L, const Element, Target>;
  using Node = LeafNode<L, Element, Target>;
  return Var<L, Element, Target>(
      tape.add<Node>(TensorAccess::take<Handle>(std::move(tensor)), wants_gradient).result());
}

/// The same of data whose rows may be split over ranks, unlike those of constants.
template <LayoutType L, class E, class Target>
[[nodiscard]] auto data_on(TapeCore& tape, ShardedTensor<L, E, Target>&& tensor, SourceLocation where) {
  auto out = leaf_on(tape, std::move(tensor), false, where);
  out.slot().add_rows(RowAxes::of_data<L>(out.resources().core()));
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
