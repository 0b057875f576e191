// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A trained tensor with its gradient accumulator, its finished gradient and its optimizer state.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/global_sum.hpp>
#include <shardwright/train/gradient_reduction.hpp>

#include <optional>
#include <span>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A parameter in layout `Value` whose gradient is accumulated in layout `Accumulator`.
///
/// `Accumulator` is what propagation gives the weight gradient, such as Partial<Sum, dp>: microbatches add to
/// it without communication, and one transition leads to `Gradient<Value>`. That transition starts when all
/// who add to it have called `end_contribution`, or else in `finish_gradient`.
///
/// A pipeline may hold a parameter twice on a rank (tied tables, one object that two stages add to) and on
/// several meshes (stages of both directions, tied tables): copies, whose gradients are summed and which
/// count once in the norm.
template <LayoutType Value, LayoutType Accumulator, class Element = float, class Target = DefaultTarget>
class Parameter {
public:
  using value_layout = Value;
  using accumulator_layout = Accumulator;
  using gradient_layout = Gradient<Value>;
  using element = Element;
  using target = Target;
  using Tensor = ShardedTensor<Value, Element, Target>;
  using AccumulatorTensor = ShardedTensor<Accumulator, Element, Target>;
  using GradientTensor = ShardedTensor<gradient_layout, Element, Target>;

  /// @brief Where a weight gradient goes: `tensor = beta * tensor + gradient`.
  struct Slot {
    AccumulatorTensor& tensor;
    Element beta;
  };

  Parameter(std::string name, Tensor value) : name_(std::move(name)), value_(std::move(value)) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const Tensor& value() const noexcept { return value_; }
  [[nodiscard]] Tensor& value() noexcept { return value_; }
  /// @brief Whether weight decay applies: to matrices, not to vectors.
  [[nodiscard]] static constexpr bool decays() noexcept { return Value::tensor_rank > 1; }

  /// @brief The accumulator to add this microbatch's gradient to; the first one of a step overwrites.
  /// @throws LifecycleError after finish_gradient, until drop_gradient opens the next step.
  [[nodiscard]] Slot gradient_slot() {
    if (gradient_ || reduction_.started()) {
      throw LifecycleError("Parameter " + name_ +
                           ": the step's gradient is finished, nothing must be added to it (call"
                           " restart() for the next step)");
    }
    const bool first = !accumulator_;
    if (first)
      accumulator_.emplace(value_.resources(), value_.shape());
    return {*accumulator_, first ? Element(0) : Element(1)};
  }

  /// @brief How many stages of this rank add to the gradient; each calls end_contribution once in a step.
  void set_contributors(int stages) noexcept { contributors_ = stages; }
  /// @brief The ranks of other meshes that hold a copy of this rank's block, this rank among them.
  void set_copies(HostCommunicator ranks) { copies_ = std::move(ranks); }
  /// @brief Whether this rank's copy is the one that stands for all.
  [[nodiscard]] bool first_copy() const { return !copies_.valid() || copies_.rank() == 0; }
  /// @brief Whether this rank is the one among all that hold a block whose squares count in the norm.
  [[nodiscard]] bool counts_once() const {
    return first_copy() && detail::counts_once<gradient_layout>(value_.core());
  }

  /// @brief Says that one contributor has added its last microbatch; the last of them starts the transition,
  /// which runs while the caller goes on. Collective then, in one order on all ranks of the mesh.
  void end_contribution() {
    if (++contributions_ < contributors_)
      return;
    reduction_.start(*take_accumulator());
  }

  /// @brief Ends the transition from the accumulator to the gradient, or runs all of it, in place where it is
  /// an all_reduce, and sums over the copies.
  /// @throws LifecycleError where no gradient was accumulated.
  void finish_gradient() {
    gradient_.emplace(reduction_.started() ? reduction_.finish()
                                           : redistribute<gradient_layout>(*take_accumulator()));
    contributions_ = 0;
    if (copies_.valid() && copies_.size() > 1)
      sum_over_copies();
  }

  /// @brief The gradient of the summed loss, after finish_gradient. @throws LifecycleError before it.
  [[nodiscard]] const GradientTensor& gradient() const {
    if (!gradient_)
      throw LifecycleError("Parameter " + name_ + ": the gradient is not finished (call finish() first)");
    return *gradient_;
  }
  /// @brief Gives the gradient's memory back to the pool; a transition under way is waited for.
  void drop_gradient() {
    if (reduction_.started())
      static_cast<void>(reduction_.finish());
    gradient_.reset();
    accumulator_.reset();
    contributions_ = 0;
  }

  /// @brief The optimizer's moments, made by its first step.
  struct State {
    Tensor first_moment;
    Tensor second_moment;
  };
  [[nodiscard]] std::optional<State>& state() noexcept { return state_; }

private:
  /// The accumulator, which the parameter is left without.
  [[nodiscard]] std::optional<AccumulatorTensor> take_accumulator() {
    if (!accumulator_) {
      throw LifecycleError(
          "Parameter " + name_ +
          ": a step must give every parameter a gradient, but this one got none (run its backward pass)");
    }
    return std::exchange(accumulator_, std::nullopt);
  }

  void sum_over_copies() {
    if constexpr (Target::host_accessible) {
      detail::wait_for_kernels(gradient_->execution());
      copies_.all_reduce_in_place(std::span<Element>(gradient_->mutable_data(), gradient_->local_size()));
    } else {
      throw InvalidArgument("Parameter " + name_ +
                            ": copies of other stages must lie in host memory, which their communicator "
                            "reaches (use a host target)");
    }
  }

  std::string name_;
  Tensor value_;
  std::optional<AccumulatorTensor> accumulator_;
  detail::GradientReduction<AccumulatorTensor, GradientTensor> reduction_;
  std::optional<GradientTensor> gradient_;
  std::optional<State> state_;
  HostCommunicator copies_;
  int contributors_ = 1;
  int contributions_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
