// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Detects a value, such as a loss or a gradient norm, that rises far above its recent values.

#include <shardwright/core/config.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The conditions of a spike; both must hold.
struct SpikeOptions {
  double deviations = 6;    ///< Distance above the mean of recent values, in standard deviations.
  double ratio = 1.2;       ///< Times that mean.
  double memory = 50;       ///< Number of values after which an old one has lost most of its weight.
  std::int64_t settle = 20; ///< Values before the first report.
};

/// @brief Running mean and variance with exponential forgetting, which reports values far above them.
///
/// m += a (x - m); v = (1 - a) (v + a (x - m)^2) with a = 1 / memory (West, 1979, with constant weights). A
/// spike is clamped to the threshold, so that a second one right after it is reported, too.
class SpikeDetector {
public:
  explicit SpikeDetector(SpikeOptions options = {}) : options_(options) {}

  /// @brief Adds the next value; returns whether it is a spike. Non-finite values are ignored.
  bool spike(double value) {
    if (!std::isfinite(value))
      return false;
    const double highest = threshold();
    const bool found = values_ >= options_.settle && value > highest;
    // Early values have more weight, so that the mean does not depend too much on the first one.
    const double weight = 1 / std::min(static_cast<double>(++values_), options_.memory);
    const double difference = (found ? highest : value) - mean_;
    mean_ += weight * difference;
    variance_ = (1 - weight) * (variance_ + weight * difference * difference);
    return found;
  }

  /// @brief Mean of the recent values.
  [[nodiscard]] double mean() const noexcept { return mean_; }
  /// @brief Returns the threshold that a value must exceed to be a spike.
  [[nodiscard]] double threshold() const {
    return std::max(mean_ + options_.deviations * std::sqrt(variance_),
                    mean_ + (options_.ratio - 1) * std::abs(mean_));
  }

private:
  SpikeOptions options_;
  std::int64_t values_ = 0;
  double mean_ = 0;
  double variance_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
