// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tape: creates Vars and computes their gradients.

#include <shardwright/train/step/loss_scale.hpp>
#include <shardwright/train/tape/constant_operand.hpp>
#include <shardwright/train/tape/core.hpp>
#include <shardwright/train/tape/leaf_node.hpp>
#include <shardwright/train/tape/var.hpp>

#include <optional>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The operations of one microbatch, for its gradients.
///
/// `input` and `variable` put tensors on it; operations on the Vars follow; `backward` computes the
/// gradients. A restarted tape reuses its memory. It belongs to its rank's thread.
template <class Target = DefaultTarget> class Tape {
public:
  Tape() : Tape(Recording::training) {}
  /// @param origin keys the random numbers of the microbatch; dropout in training needs one
  /// @param rows positions of the rows of its sequences: the row_order() of its ids; those of the text by
  /// default
  explicit Tape(Recording recording, const std::optional<BatchOrigin>& origin = {}, const RowOrder& rows = {})
      : core_(new detail::TapeCore) {
    core_->restart(recording, origin, rows);
  }
  Tape(Tape&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  Tape& operator=(Tape other) noexcept {
    std::swap(core_, other.core_);
    return *this;
  }
  ~Tape() {
    if (core_ != nullptr)
      core_->release();
  }

  /// @brief Discards everything and starts again. @throws LifecycleError while a Var on it is in use.
  void restart(Recording recording = Recording::training, const std::optional<BatchOrigin>& origin = {},
               const RowOrder& rows = {}) {
    core_->restart(recording, origin, rows);
  }
  /// @brief Chooses whether ranks compare the data that enters the tape, such as inputs, token ids and
  /// targets; see require_equal_inputs(). Training does so in its first step.
  void check_inputs(bool on) { core_->check_inputs(on); }
  /// @brief Returns the FirstPass for counters: none in an evaluation, and none once backward passes run.
  [[nodiscard]] std::optional<FirstPass> first_pass() const noexcept { return core_->first_pass(); }
  /// @brief Sets the share of the step's routed tokens whose targets count; 1 after restart(). Losses of
  /// routed tokens, such as balance_loss, are multiplied by it, so that the division by the counted targets
  /// becomes one by the routed tokens. @pre nothing is recorded
  void set_counted_share(double share) noexcept { core_->set_counted_share(share); }
  /// @brief That share.
  [[nodiscard]] double counted_share() const noexcept { return core_->counted_share(); }
  /// @brief Sets the factor by which the gradients of losses are multiplied. It travels with their sums, and
  /// the GradAccumulator to which these are added removes it.
  /// @throws LifecycleError once something is recorded.
  void set_loss_scale(LossScale scale) {
    if (!core_->empty())
      detail::reject_use(
          "Tape: the loss scale must be set before anything is recorded, as all gradients of a microbatch have one (set it after restart())");
    core_->set_loss_scale(std::move(scale));
  }

  /// @brief Puts a tensor on the tape as data, without a gradient. It shares the tensor's memory, which must
  /// not be written until the last gradient.
  template <LayoutType L, class E>
  [[nodiscard]] Var<L, std::remove_const_t<E>, Target>
  input(ShardedTensor<L, E, Target>&& tensor, SourceLocation where = SourceLocation::current()) {
    return detail::data_on(*core_, std::move(tensor), where);
  }
  template <LayoutType L, class E>
  [[nodiscard]] Var<L, std::remove_const_t<E>, Target>
  input(const ShardedTensor<L, E, Target>& tensor, SourceLocation where = SourceLocation::current()) {
    return detail::data_on(*core_, tensor.share(), where);
  }
  /// @brief Puts a tensor on the tape whose gradient() is wanted.
  template <LayoutType L, class E>
  [[nodiscard]] Var<L, std::remove_const_t<E>, Target> variable(ShardedTensor<L, E, Target>&& tensor) {
    return detail::leaf_on(*core_, std::move(tensor), true, {});
  }
  template <LayoutType L, class E>
  [[nodiscard]] Var<L, std::remove_const_t<E>, Target> variable(const ShardedTensor<L, E, Target>& tensor) {
    return detail::leaf_on(*core_, tensor.share(), true, {});
  }

  /// @brief Adds a gradient to a value, as if from an operation that reads it.
  /// @throws InvalidArgument if their shapes differ, or they are on two meshes.
  template <LayoutType L, class Element, class E>
  void seed(const Var<L, Element, Target>& value, ShardedTensor<Gradient<L>, E, Target> gradient,
            SourceLocation where = SourceLocation::current()) {
    detail::require_one_mesh("seed", value.resources(), gradient, where);
    detail::require_shape("seed", "gradient", gradient.shape(), value.shape(), gradient.core(), where);
    core_->note_seed();
    value.slot().give(std::move(gradient), where);
  }
  /// @brief Computes the gradients of everything on the tape, inputs and parameters, from the last operation
  /// to the first. Collective if operations or transitions are. Every loss on the tape contributes, whether
  /// its result is used or not. After it, nothing can be recorded until restart().
  /// @param position whether it is the step's last one, in which reductions start as soon as possible
  /// @throws LifecycleError for a second call without restart(), and in an evaluation.
  void backward(PassPosition position = PassPosition::middle) {
    core_->backward(detail::GradientPass::both, position);
  }
  /// @brief Computes only gradients of inputs; backward_weights() must follow.
  void backward_inputs() { core_->backward(detail::GradientPass::input, PassPosition::middle); }
  /// @brief Computes the gradients of parameters. @throws LifecycleError if backward_inputs() has not run.
  void backward_weights(PassPosition position = PassPosition::middle) {
    core_->backward(detail::GradientPass::weight, position);
  }

  /// @brief The gradient of a `variable`, after backward(). @throws LifecycleError if there is none.
  template <LayoutType L, class Element>
  [[nodiscard]] auto gradient(const Var<L, Element, Target>& variable) const {
    if (!variable.slot().has_gradient())
      detail::reject_use(
          "Tape: a value has a gradient after backward() only if it is a variable() that the loss depends on, but this one has none (make it with variable(), and use it)");
    return variable.slot().gradient();
  }
  [[nodiscard]] detail::TapeCore& core() const noexcept { return *core_; }

private:
  detail::TapeCore* core_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
