// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Dynamic loss scaling: a rule that finds the largest loss scale without overflow, on hosts and on
/// devices.

#include <shardwright/core/error.hpp>
#include <shardwright/tensor/memory/device_value.hpp>
#include <shardwright/train/step/loss_scale.hpp>
#include <shardwright/train/step/record.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The rule of dynamic loss scaling.
///
/// Gradients here are those of the summed loss: 2^10 has the effect of 2^10 times the tokens of a step for
/// the mean loss. The gradient of a logit is at most the scale, so 2^15 is the largest scale without overflow
/// in float16.
struct LossScaleOptions {
  int initial_exponent = 10;
  int least_exponent = 0;
  int most_exponent = 15;
  std::int64_t growth_steps = 1000; ///< Finite steps in a row after which the scale doubles.
};

namespace detail {

/// @throws InvalidArgument if an exponent is outside the range of the options, or the scale would never grow.
void check_loss_scale(const LossScaleOptions& options, int exponent);

/// The scale after a step.
struct UpdateLossScale {
  LossScaleOptions options;
  SHARDWRIGHT_FUNCTION void operator()(GradientSummary& step, LossScaleState& state) const {
    if (step.tokens == 0) // there was no gradient
      return;
    state.good_steps = step.finite() ? state.good_steps + 1 : 0;
    if (!step.finite()) {
      ++state.overflows;
      step.overflowed = state.exponent > options.least_exponent;
      state.exponent -= step.overflowed ? 1 : 0;
    } else if (state.good_steps == options.growth_steps) {
      state.exponent += state.exponent < options.most_exponent ? 1 : 0;
      state.good_steps = 0;
    }
  }
};

} // namespace detail

/// @brief Halves the scale after a step that overflowed and doubles it after many that did not (Micikevicius
/// et al., arXiv 1710.03740, section 3.2).
///
/// The norm of a GradientSummary is the same on all ranks, and so are the verdict and the scale. An
/// overflowed step is not taken. At the smallest scale nothing more can be done, and the step counts as a
/// non-finite one; StepGuard ends a run of many. The state stays in the target's memory; on a device the host
/// never waits for it.
template <class Target = DefaultTarget> class DynamicLossScale {
public:
  /// @throws InvalidArgument if the initial exponent is outside the bounds, or for fewer than one growth
  /// step.
  template <class Mesh>
  explicit DynamicLossScale(const Mesh& mesh, LossScaleOptions options = {})
      : options_((detail::check_loss_scale(options, options.initial_exponent), options)),
        state_(std::make_shared<detail::DeviceValue<LossScaleState, Target>>(
            mesh.core().template resources<Target>(), LossScaleState{options.initial_exponent, 0, 0})) {}

  /// @brief The scale, for the model: it follows the state from step to step.
  [[nodiscard]] LossScale scale() const {
    return LossScale(std::shared_ptr<const LossScaleState>(state_, state_->get()));
  }
  /// @brief Processes a finished step: if it overflowed and there is a smaller scale to try, marks it as
  /// `overflowed`, so that it does not count as a non-finite one.
  void update(GradientSummaryOn<Target>& step) {
    using Update = detail::ApplyToStep<detail::UpdateLossScale, LossScaleState>;
    detail::run_once("sw::loss_scale", state_->execution(),
                     Update{{options_}, detail::record_of(step), state_->get()});
  }
  /// @brief Steps that overflowed; waits for a device.
  [[nodiscard]] std::int64_t overflows() const { return state().overflows; }
  /// @brief Everything that changes from step to step; waits for a device.
  [[nodiscard]] LossScaleState state() const { return state_->read(); }
  /// @brief Restores a state from state(). @throws InvalidArgument if its exponent is outside the bounds.
  void set_state(const LossScaleState& state) {
    detail::check_loss_scale(options_, state.exponent);
    state_->store(state);
  }

private:
  LossScaleOptions options_;
  std::shared_ptr<detail::DeviceValue<LossScaleState, Target>> state_;
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void detail::check_loss_scale(const LossScaleOptions& options, int exponent) {
  if (options.least_exponent > exponent || exponent > options.most_exponent)
    throw InvalidArgument(
        "LossScaleOptions: the exponent must be from least_exponent to most_exponent, but " +
        std::to_string(exponent) + " is not from " + std::to_string(options.least_exponent) + " to " +
        std::to_string(options.most_exponent) +
        " (correct initial_exponent, or the bounds; in float16 2^15 is the largest scale without overflow)");
  if (options.growth_steps < 1)
    throw InvalidArgument("LossScaleOptions: growth_steps must be at least 1, but it is " +
                          std::to_string(options.growth_steps) +
                          " (for a scale that never grows, set most_exponent to initial_exponent)");
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
