// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What plan prints: a plan with its reasons, and runs beside their predictions.

#include "options.hpp"

#include <shardwright/plan/search.hpp>

#include <string>

namespace plan_example {

/// @brief The plan, its cost, what binds it, the usual recipe's plan and where its pipeline ends.
/// @param found by a search of the options.
[[nodiscard]] std::string plan_report(const Options& options, const shardwright::Plan& found);

/// @brief The plan and its cost as JSON.
[[nodiscard]] std::string plan_json(const Options& options, const shardwright::Plan& found);

/// @brief Predicted and measured step times of a table of runs, row by row and summed up.
/// @throws shardwright::DataError naming line and field.
[[nodiscard]] std::string evaluation_report(const std::string& csv);

} // namespace plan_example
