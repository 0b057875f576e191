// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The gradient of one parameter during a step, as far as it does not depend on the element type.

#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/tensor/transition/bound.hpp>
#include <shardwright/train/gradient/squares.hpp>
#include <shardwright/train/parameter_base.hpp>
#include <shardwright/train/step/loss.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

[[noreturn]] inline void reject_lost_model() {
  reject_use(
      "GradAccumulator: the model must outlive it, but the model, or a parameter of it, is destroyed (declare the model before its accumulator, and make a new accumulator for a new model)");
}

/// The gradient of one parameter, of any element type.
template <class Target> class AnyParameterGradient : public GradientOfParameter {
public:
  explicit AnyParameterGradient(ParameterBase& parameter) : parameter_(&parameter) {
    parameter.hold_gradient(this);
  }
  AnyParameterGradient(const AnyParameterGradient&) = delete;
  AnyParameterGradient& operator=(const AnyParameterGradient&) = delete;
  virtual ~AnyParameterGradient() {
    if (parameter_ != nullptr)
      parameter_->hold_gradient(nullptr);
  }

  /// @throws LifecycleError if it is destroyed.
  [[nodiscard]] const ParameterBase& parameter() const { return owner(); }
  void forget_parameter() noexcept final { parameter_ = nullptr; }
  [[nodiscard]] bool lost() const noexcept { return parameter_ == nullptr; }
  /// With the loss scale in the gradient, if it comes from a tape.
  [[nodiscard]] const SumOrigin& origin() const noexcept { return origin_; }
  /// The recordings that have added to it in this step; of those that are not known, 0.
  [[nodiscard]] std::span<const std::uint64_t> passes() const noexcept { return passes_; }

  /// Declares that the step adds nothing more, and starts what has to be reduced. Collective over the mesh.
  virtual void complete() = 0;
  /// Waits for the reductions.
  /// @throws LifecycleError if no gradient was accumulated.
  virtual void wait() = 0;
  /// Sums the results over the copies to give the final gradient. Collective over the copies, so it must be
  /// called for all parameters in the same order on all ranks that hold copies, whatever the order of their
  /// models.
  virtual void sum_over_copies() = 0;
  /// Returns the memory to the pool, after waiting for pending reductions; the next step begins.
  virtual void drop() = 0;

  /// Partial sums that the squares of this rank's elements need.
  [[nodiscard]] virtual std::size_t squares_workspace() const = 0;
  /// Adds the squares of the elements that this rank counts.
  virtual void add_squares(GradientSquares<Target>& sum) const = 0;

  /// Chooses whether raw gradients are checked before they are summed with those of other ranks.
  void watch(bool on) noexcept { watched_ = on; }
  /// Chooses whether raw gradients are hashed before they are summed with those of other ranks; on a host.
  void hash_raw(bool on) noexcept { hashed_ = on; }
  /// The hash of this rank's raw gradients of the step, equal on ranks whose gradients are equal.
  [[nodiscard]] std::uint64_t raw_hash() const noexcept { return raw_hash_; }
  /// The transition of raw gradients, which begins in their layout.
  [[nodiscard]] virtual const TransitionSteps& raw_transition() const = 0;
  /// Number of non-finite elements: in this rank's raw gradients of the step, if they were watched, else in
  /// the reduced gradient. Negative: some, of which the number is not known, as terms did not fit FixedPoint.
  [[nodiscard]] virtual std::int64_t non_finite() const = 0;

protected:
  [[nodiscard]] ParameterBase& owner() const {
    if (parameter_ == nullptr)
      reject_lost_model();
    return *parameter_;
  }

  /// Adds a raw gradient to the hash.
  void add_raw(const void* data, std::size_t bytes) noexcept {
    const auto* at = static_cast<const unsigned char*>(data);
    for (std::uint64_t word = 0; bytes > 0; word = 0) {
      const std::size_t taken = std::min(bytes, sizeof(word));
      std::memcpy(&word, at, taken);
      raw_hash_ = mixed(raw_hash_, word);
      at += taken;
      bytes -= taken;
    }
  }

  SumOrigin origin_;
  std::vector<std::uint64_t> passes_;
  bool watched_ = false;
  bool hashed_ = false;
  std::uint64_t raw_hash_ = 0;

private:
  ParameterBase* parameter_; // null once it is destroyed
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
