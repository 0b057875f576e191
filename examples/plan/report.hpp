// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The text that plan prints: a plan with its reasons, and runs with their predictions.

#include "options.hpp"
#include "study.hpp"

#include <string>

namespace plan_example {

/// @brief The model, the cluster and the run in one line, and in another by what its times are scaled.
[[nodiscard]] std::string headline(const Options& options);

/// @brief The plan, its cost, its bottleneck, the usual recipe's plan and where its pipeline ends.
[[nodiscard]] std::string plan_report(const Options& options, const Study& study);

/// @brief Why there is no plan, and what would change that, in one sentence.
[[nodiscard]] std::string no_plan_report(const Options& options, const Study& study);

/// @brief The plan or why there is none, its cost and its reasons as JSON.
[[nodiscard]] std::string plan_json(const Options& options, const Study& study);

/// @brief The best plans over a range of a resource as a table.
[[nodiscard]] std::string sweep_report(const Options& options, const shardwright::Sweep& sweep);

/// @brief The same as JSON.
[[nodiscard]] std::string sweep_json(const Options& options, const shardwright::Sweep& sweep);

/// @brief What the measured runs of a CSV file say of the program that ran.
/// @throws shardwright::DataError naming file, line and field, or the run that cannot be compared.
[[nodiscard]] ProgramFactor read_program(const std::string& file);

/// @brief Predicted and measured step times of a CSV file of runs, row by row and in summary.
/// @throws shardwright::DataError naming file, line and field.
[[nodiscard]] std::string evaluation_report(const std::string& file);

/// @brief The same as JSON.
[[nodiscard]] std::string evaluation_json(const std::string& file);

} // namespace plan_example
