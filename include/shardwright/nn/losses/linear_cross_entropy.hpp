// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The logits of an output table and their cross entropy in one operation, whose gradient reuses the
/// memory of the logits.

#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace operation {

/// @brief matmul_transposed whose result has the AccumulationElement: the unrounded sums of low-precision
/// products. It has no gradient.
struct LinearScores {
  static constexpr detail::GradientReads left_gradient_reads{};
  static constexpr detail::GradientReads right_gradient_reads{};
  template <class X, class W> [[nodiscard]] auto forward(SourceLocation where, const X& x, const W& w) const {
    using L = MatmulLayout<typename X::layout, typename W::layout, MatmulForm::right_transposed>;
    auto shape = x.shape();
    shape.back() = w.shape()[0];
    ShardedTensor<L, AccumulationElement<typename X::value_type>, typename X::target> out(x.resources(),
                                                                                          shape, where);
    matmul_input_gradient_into(out, x, w, 0.0, where);
    return out;
  }
};

} // namespace operation

namespace detail {

/// loss = cross_entropy(x table^T, targets).
template <class X, class Table, class Targets> class LinearCrossEntropyNode final : public TapeNode {
  using Element = typename X::element;
  using Target = typename X::target;
  using L = MatmulLayout<typename X::layout, typename Table::layout, MatmulForm::right_transposed>;
  using Scores = ShardedTensor<L, kernels::detail::ScoresElement<Element>, Target>;

public:
  using Loss = CrossEntropyOn<typename Targets::layout, Target>;

  LinearCrossEntropyNode(TapeCore& tape, SourceLocation where, X x, Table table, Targets targets,
                         const CrossEntropyOptions& options)
      : TapeNode(tape), where_(where), x_(std::move(x)), table_(std::move(table)),
        targets_(std::move(targets)), options_(options) {
    if (!tape.trains())
      return;
    table_.note_use(tape);
    x_.keep(*this, true);
  }

  void forward() override {
    const MemoryFor memory(MemoryKind::activations, "cross entropy");
    Scores scores = [this] {
      const auto reading = table_.reading();
      return operation::MatmulTransposed{}.forward(where_, x_.read(), table_.read());
    }();
    if (tape().trains() && (tape().replays() || !recomputes())) {
      loss_ = cross_entropy_in_place(scores, targets_, tape().loss_scale().in_kernels(), options_,
                                     tape().rows(), where_);
      scores_gradient_.emplace(std::move(scores));
    } else {
      loss_ = cross_entropy_at(scores, targets_, options_, tape().rows(), where_);
    }
  }

  void backward(GradientPass pass) override {
    const MemoryFor memory(MemoryKind::activations, "cross entropy");
    if (!scores_gradient_)
      forward();
    if (pass != GradientPass::input) {
      {
        const auto x = x_.read();
        x_.let_go();
        const auto slot = table_.slot();
        matmul_weight_gradient_into(slot.tensor, *scores_gradient_, x, slot.beta);
      }
      table_.end_pass();
    }
    if (pass == GradientPass::input)
      x_.secure();
    if (pass != GradientPass::weight && x_.wants_gradient()) {
      const auto reading = table_.reading();
      x_.give(matmul(*scores_gradient_, table_.read()));
    }
    if (pass != GradientPass::input)
      scores_gradient_.reset();
  }

  /// The sums of the first pass.
  [[nodiscard]] Loss take_loss() noexcept { return std::move(loss_); }

private:
  SourceLocation where_;
  X x_;
  Table table_;
  Targets targets_;
  CrossEntropyOptions options_;
  Loss loss_;
  std::optional<Scores> scores_gradient_;
};

} // namespace detail

/// @brief Scores x table^T for predictions in an evaluation: in the AccumulationElement, without a gradient,
/// and not rounded as in linear_cross_entropy.
template <detail::TapeOperand X, class C, class R, class E, class Z, class T>
[[nodiscard]] auto linear_scores(X&& x, Parameter<C, R, E, Z, T>& table,
                                 SourceLocation where = SourceLocation::current()) {
  auto operand = detail::operand_of(std::forward<X>(x), where);
  using Value = typename decltype(operand)::Value;
  const detail::WeightReading reading(table);
  return operation::LinearScores{}.forward(where, Value(operand.read()), table.weight());
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
  auto operand = detail::operand_of(std::forward<X>(x), where);
  auto weight = detail::operand_of(table, where);
  using Targets = ShardedTensor<I, const std::remove_const_t<Id>, T>;
  using Node = detail::LinearCrossEntropyNode<decltype(operand), decltype(weight), Targets>;
  detail::TapeCore& tape = operand.tape();
  if (tape.checks_inputs()) {
    require_equal_inputs(targets, where);
    detail::require_agreement(targets.core(), "linear_cross_entropy", options.numbers(), {}, where);
  }
  return detail::on_tape(
      tape.record<Node>(where, std::move(operand), std::move(weight), targets.share(), options).take_loss(),
      tape);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
