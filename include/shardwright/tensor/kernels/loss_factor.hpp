// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The factor on the gradient of a loss, as an argument of kernels.

#include <shardwright/core/config.hpp>

#include <cmath>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief The factor on the gradient of every token's loss: a number times 2 to the power of an exponent.
struct LossFactor {
  double fixed = 1;
  const std::int32_t* exponent = nullptr; ///< Written by a kernel, in the kernels' memory; null for 0.

  LossFactor(double number = 1,
             const std::int32_t* power = nullptr) // NOLINT(google-explicit-constructor): a number
      : fixed(number), exponent(power) {}
  [[nodiscard]] SHARDWRIGHT_FUNCTION double value() const {
    return exponent == nullptr ? fixed : std::ldexp(fixed, *exponent);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
