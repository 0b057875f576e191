// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A program whose measured runs say how its steps differ from their predictions.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/spec/model.hpp>

#include <cmath>
#include <cstddef>

namespace plan_example {

using namespace shardwright;

/// @brief The factor by which a program is slower than predicted. Programs differ by one that no input
/// states, and that is nearly the same for all runs of one.
struct ProgramFactor {
  double factor = 1; ///< Median of measured over predicted time.
  std::size_t runs = 0;

  /// @brief A predicted cost as that of the program. Its interval holds four of five further runs: as in the
  /// interval of other programs, 9% are on either side, 1.34 standard deviations of a normal distribution
  /// away. The variance is that of one run and that of the mean of the measured ones.
  [[nodiscard]] StepCost of(const StepCost& cost, const ModelSpec& model) const {
    constexpr Calibration calibration;
    const double within = model.experts.used() ? calibration.experts_within : calibration.dense_within;
    const double width = std::exp(1.34 * within * std::sqrt(1 + 1 / static_cast<double>(runs)));
    StepCost out = cost.slowed(factor);
    out.least_seconds = out.step_seconds / width;
    out.most_seconds = out.step_seconds * width;
    return out;
  }
};

} // namespace plan_example
