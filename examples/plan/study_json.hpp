// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A study as a JSON document: what --json prints, and all that plan_page shows.

#include "options.hpp"
#include "study.hpp"

#include <nlohmann/json.hpp>

namespace plan_example {

/// @brief Inputs, plan, cost, reasons and sweeps of a study, in bytes, seconds, FLOP/s and fractions of 1.
[[nodiscard]] nlohmann::ordered_json study_json(const Options& options, const Study& study);

/// @brief The points of one sweep.
[[nodiscard]] nlohmann::ordered_json sweep_points_json(const Options& options,
                                                       const shardwright::Sweep& sweep);

} // namespace plan_example
