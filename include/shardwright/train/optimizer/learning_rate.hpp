// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The learning rate over the steps: linear warm-up, then a cosine down to a minimum.

#include <shardwright/core/config.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Linear warm-up to `peak`, then half a cosine to `minimum` at `total_steps` (Loshchilov and Hutter,
/// SGDR, arXiv 1608.03983, equation 5, without restarts).
struct WarmupCosine {
  double peak = 1e-3;
  double minimum = 1e-4;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;

  /// @brief Rate of a step, counted from 0; after `total_steps` it stays at the minimum.
  [[nodiscard]] double operator()(std::int64_t step) const {
    if (step < warmup_steps)
      return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    const auto length = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
    const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / length);
    return minimum + 0.5 * (peak - minimum) * (1 + std::cos(std::numbers::pi * done));
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
