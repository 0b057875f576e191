// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Loss scaling for 16-bit gradients: the factor on the loss, the factor that removes it again, and a
/// rule that finds the largest factor without overflow.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The factor on the gradient of the loss before it is rounded to 16 bits: a power of two, so that
/// scaling and unscaling are exact.
class LossScale {
public:
  LossScale() = default; ///< 1.
  /// @brief 2^exponent.
  [[nodiscard]] static LossScale power_of_two(int exponent) {
    LossScale out;
    out.exponent_ = exponent;
    return out;
  }
  [[nodiscard]] int exponent() const noexcept { return exponent_; }
  [[nodiscard]] double factor() const { return std::ldexp(1.0, exponent_); }

  friend bool operator==(LossScale, LossScale) = default;

private:
  int exponent_ = 0;
};

/// @brief The factor that turns gradients of the scaled, summed loss into those of the mean loss, clipped.
/// The optimizer applies it once.
class GradientScale {
public:
  /// @brief 1 / (tokens * loss scale); 0 without tokens.
  explicit GradientScale(std::int64_t tokens, LossScale scale = {})
      : factor_(tokens > 0 ? 1 / static_cast<double>(tokens) / scale.factor() : 0) {}

  /// @brief Combined with the clipping factor; see clip_coefficient.
  [[nodiscard]] GradientScale clipped(double coefficient) const {
    GradientScale out = *this;
    out.factor_ *= coefficient;
    return out;
  }
  [[nodiscard]] double factor() const noexcept { return factor_; }

  /// @brief Rejects another factor, with an error sentence.
  template <class Factor> friend GradientScale operator*(GradientScale scale, const Factor&) {
    return scaled_once<Factor>(scale);
  }
  template <class Factor> friend GradientScale operator/(GradientScale scale, const Factor&) {
    return scaled_once<Factor>(scale);
  }

private:
  template <class Factor> static GradientScale scaled_once(GradientScale scale) {
    static_assert(
        sizeof(Factor) == 0,
        "GradientScale: gradients must be scaled once, and this factor already includes the tokens and the loss scale (pass the summary's scale to the optimizer unchanged)");
    return scale;
  }

  double factor_;
};

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

/// @brief The state of a DynamicLossScale.
struct LossScaleState {
  std::int32_t exponent = 0;
  std::int64_t good_steps = 0; ///< In a row, since the scale last changed.
  std::int64_t overflows = 0;

  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

namespace detail {

/// @throws InvalidArgument if an exponent is outside the range of the options, or the scale would never grow.
inline void check_loss_scale(const LossScaleOptions& options, int exponent) {
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

} // namespace detail

/// @brief Halves the scale after a step that overflowed and doubles it after many that did not (Micikevicius
/// et al., arXiv 1710.03740, section 3.2).
///
/// A step whose summary is not finite() is not taken: the norm of a GradientSummary is the same on all ranks,
/// and so are the verdict and the scale. At the smallest scale nothing more can be done; StepGuard ends such
/// a run.
class DynamicLossScale {
public:
  /// @throws InvalidArgument if the initial exponent is outside the bounds, or for fewer than one growth
  /// step.
  explicit DynamicLossScale(LossScaleOptions options = {})
      : options_(options), scale_((detail::check_loss_scale(options, options.initial_exponent),
                                   LossScale::power_of_two(options.initial_exponent))) {}

  /// @brief The scale of the next step.
  [[nodiscard]] LossScale scale() const noexcept { return scale_; }
  /// @brief Steps that overflowed.
  [[nodiscard]] std::int64_t overflows() const noexcept { return overflows_; }

  /// @brief Everything that changes from step to step.
  [[nodiscard]] LossScaleState state() const noexcept { return {scale_.exponent(), good_steps_, overflows_}; }
  /// @brief Restores a state from state(). @throws InvalidArgument if its exponent is outside the bounds.
  void set_state(const LossScaleState& state) {
    detail::check_loss_scale(options_, state.exponent);
    scale_ = LossScale::power_of_two(state.exponent);
    good_steps_ = state.good_steps;
    overflows_ = state.overflows;
  }

  /// @brief Processes a finished step. @return whether the optimizer may take it
  bool update(bool finite) {
    good_steps_ = finite ? good_steps_ + 1 : 0;
    overflows_ += finite ? 0 : 1;
    if (!finite) {
      scale_ = LossScale::power_of_two(std::max(options_.least_exponent, scale_.exponent() - 1));
    } else if (good_steps_ == options_.growth_steps) {
      scale_ = LossScale::power_of_two(std::min(options_.most_exponent, scale_.exponent() + 1));
      good_steps_ = 0;
    }
    return finite;
  }

private:
  LossScaleOptions options_;
  LossScale scale_;
  std::int64_t good_steps_ = 0;
  std::int64_t overflows_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
