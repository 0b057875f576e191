// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Loss scaling for 16-bit gradients: the factor on the loss, and the factor that removes it again.

#include <shardwright/core/config.hpp>
#include <shardwright/tensor/kernels/loss_factor.hpp>

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The state of a DynamicLossScale.
struct LossScaleState {
  std::int32_t exponent = 0;
  std::int64_t good_steps = 0; ///< In a row, since the scale last changed.
  std::int64_t overflows = 0;

  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

/// @brief The factor on the gradient of the loss before it is rounded to 16 bits: a power of two, so that
/// scaling and unscaling are exact. A constant, or one that a DynamicLossScale changes.
class LossScale {
public:
  LossScale() = default; ///< 1.
  /// @brief 2^exponent.
  [[nodiscard]] static LossScale power_of_two(int exponent) {
    LossScale out;
    out.exponent_ = exponent;
    return out;
  }
  /// @brief 2^exponent of a state in the memory of a target, where kernels read and change it; copies refer
  /// to the same one.
  explicit LossScale(std::shared_ptr<const LossScaleState> state) : state_(std::move(state)) {}

  /// @brief The factor of a constant; 1 for a dynamic one, which only kernels read.
  [[nodiscard]] double factor() const { return std::ldexp(1.0, exponent_); }
  /// @brief The factor as an argument of kernels, which read it when they run.
  [[nodiscard]] kernels::LossFactor in_kernels() const {
    return {factor(), state_ ? &state_->exponent : nullptr};
  }

  friend bool operator==(const LossScale&, const LossScale&) = default;

private:
  int exponent_ = 0;
  std::shared_ptr<const LossScaleState> state_;
};

/// @brief The factor that turns gradients of the scaled, summed loss into those of the mean loss, clipped.
/// The optimizer applies it once.
class GradientScale {
public:
  /// @brief 1 / (tokens * factor of the loss scale); 0 without tokens.
  SHARDWRIGHT_FUNCTION explicit GradientScale(std::int64_t tokens, double loss_factor = 1)
      : factor_(tokens > 0 ? 1 / static_cast<double>(tokens) / loss_factor : 0) {}

  /// @brief Combined with the clipping factor; see clip_coefficient.
  [[nodiscard]] SHARDWRIGHT_FUNCTION GradientScale clipped(double coefficient) const {
    GradientScale out = *this;
    out.factor_ *= coefficient;
    return out;
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION double factor() const noexcept { return factor_; }

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

} // namespace shardwright::inline SHARDWRIGHT_ABI
