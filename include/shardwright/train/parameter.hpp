// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A trained tensor with its gradient accumulator, its finished gradient and its optimizer state.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <optional>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A parameter in layout `Value` whose gradient is accumulated in layout `Accumulator`.
///
/// `Accumulator` is what propagation gives the weight gradient, such as Partial<Sum, dp>: microbatches add to
/// it without communication, and `finish_gradient` runs the one transition to `Gradient<Value>`.
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
    if (gradient_) {
      throw LifecycleError("Parameter " + name_ +
                           ": the step's gradient is finished, nothing must be added to it (call"
                           " restart() for the next step)");
    }
    const bool first = !accumulator_;
    if (first)
      accumulator_.emplace(value_.resources(), value_.shape());
    return {*accumulator_, first ? Element(0) : Element(1)};
  }

  /// @brief Runs the transition from the accumulator to the gradient, in place where it is an all_reduce.
  /// @throws LifecycleError where no gradient was accumulated.
  void finish_gradient() {
    if (!accumulator_) {
      throw LifecycleError(
          "Parameter " + name_ +
          ": a step must give every parameter a gradient, but this one got none (run its backward pass)");
    }
    gradient_.emplace(redistribute<gradient_layout>(std::move(*accumulator_)));
    accumulator_.reset();
  }

  /// @brief The gradient of the summed loss, after finish_gradient. @throws LifecycleError before it.
  [[nodiscard]] const GradientTensor& gradient() const {
    if (!gradient_)
      throw LifecycleError("Parameter " + name_ + ": the gradient is not finished (call finish() first)");
    return *gradient_;
  }
  /// @brief Gives the gradient's memory back to the pool.
  void drop_gradient() noexcept {
    gradient_.reset();
    accumulator_.reset();
  }

  /// @brief The optimizer's moments, made by its first step.
  struct State {
    Tensor first_moment;
    Tensor second_moment;
  };
  [[nodiscard]] std::optional<State>& state() noexcept { return state_; }

private:
  std::string name_;
  Tensor value_;
  std::optional<AccumulatorTensor> accumulator_;
  std::optional<GradientTensor> gradient_;
  std::optional<State> state_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
