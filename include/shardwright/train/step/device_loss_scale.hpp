// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Dynamic loss scaling on a device: the scale, its update rule and its readers stay on the device.

#include <shardwright/tensor/memory/device_value.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/step/loss_scale.hpp>
#include <shardwright/train/step/record.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The exponent of a loss scale for kernels: the device's or, if there is none, the host's.
struct LossExponent {
  const LossScaleState* state = nullptr;
  int fixed = 0;
  SHARDWRIGHT_FUNCTION int value() const { return state == nullptr ? fixed : state->exponent; }
};

/// DynamicLossScale::update; an overflowed step is marked non-finite, so that no optimizer takes it, and no
/// guard counts it if there is a smaller scale to try.
struct UpdateLossScale {
  LossScaleState* state;
  StepRecord* record;
  LossScaleOptions options;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    if (record->tokens == 0) // there was no gradient
      return;
    const bool finite = record->finite != 0;
    state->good_steps = finite ? state->good_steps + 1 : 0;
    state->overflows += finite ? 0 : 1;
    if (!finite) {
      if (state->exponent > options.least_exponent) {
        --state->exponent;
        record->overflowed = 1;
      }
    } else if (state->good_steps == options.growth_steps) {
      if (state->exponent < options.most_exponent)
        ++state->exponent;
      state->good_steps = 0;
    }
  }
};

/// The loss scale of a model on a device: a LossScale of the host, or one that a DynamicDeviceLossScale
/// changes in the device's memory. Copies refer to the same one.
template <class Target> class DeviceLossScale {
public:
  DeviceLossScale(LossScale fixed = {})
      : fixed_(fixed) {} // NOLINT(google-explicit-constructor): the constant
  explicit DeviceLossScale(std::shared_ptr<DeviceValue<LossScaleState, Target>> state)
      : state_(std::move(state)) {}

  /// Returns the exponent for kernels to read.
  [[nodiscard]] LossExponent exponent() const {
    return {state_ ? state_->get() : nullptr, fixed_.exponent()};
  }
  /// Returns whether the device changes it.
  [[nodiscard]] bool dynamic() const noexcept { return state_ != nullptr; }
  /// The host's scale; 1 if the device changes it.
  [[nodiscard]] LossScale fixed() const noexcept { return fixed_; }

  friend bool operator==(const DeviceLossScale&, const DeviceLossScale&) = default;

private:
  LossScale fixed_;
  std::shared_ptr<DeviceValue<LossScaleState, Target>> state_;
};

} // namespace detail

/// @brief The factor on the loss's gradient of a model on a target.
template <class Target>
using LossScaleOn =
    std::conditional_t<bool(Target::host_accessible), LossScale, detail::DeviceLossScale<Target>>;

/// @brief DynamicLossScale for a model on a device: the same rule, which runs there. `scale()` is passed to
/// the model once; the host never knows its value.
template <class Target> class DynamicDeviceLossScale {
public:
  /// @throws InvalidArgument as DynamicLossScale.
  template <class Mesh>
  explicit DynamicDeviceLossScale(const Mesh& mesh, LossScaleOptions options = {})
      : options_((detail::check_loss_scale(options, options.initial_exponent), options)),
        state_(std::make_shared<detail::DeviceValue<LossScaleState, Target>>(
            mesh.core().template resources<Target>(), LossScaleState{options.initial_exponent, 0, 0})) {}

  [[nodiscard]] detail::DeviceLossScale<Target> scale() const {
    return detail::DeviceLossScale<Target>(state_);
  }
  /// @brief Processes a finished step; if it overflowed, the optimizer will not take it.
  void update(const DeviceSummary<Target>& summary) {
    detail::run_once("sw::loss_scale", summary.execution(),
                     detail::UpdateLossScale{state_->get(), summary.record(), options_});
  }
  /// @brief Steps that overflowed; waits for the device.
  [[nodiscard]] std::int64_t overflows() const { return state().overflows; }
  /// @brief Everything that changes from step to step; waits for the device.
  [[nodiscard]] LossScaleState state() const { return state_->read(); }
  /// @brief Restores a state from state(). @throws InvalidArgument as DynamicLossScale.
  void set_state(const LossScaleState& state) {
    detail::check_loss_scale(options_, state.exponent);
    state_->store(state);
  }

private:
  LossScaleOptions options_;
  std::shared_ptr<detail::DeviceValue<LossScaleState, Target>> state_;
};

namespace detail {

/// The exponent of a loss scale, where kernels read it.
template <class Target> [[nodiscard]] LossExponent exponent_of(const LossScaleOn<Target>& scale) {
  if constexpr (Target::host_accessible)
    return {nullptr, scale.exponent()};
  else
    return scale.exponent();
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
