// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The command that runs a plan with the example train_gpt.

#include "options.hpp"

#include <shardwright/plan/spec/configuration.hpp>

#include <string>
#include <vector>

namespace plan_example {

/// @brief A command, or the reasons why there is none.
struct Launch {
  std::string command;              ///< Empty if train_gpt cannot run the plan.
  std::vector<std::string> reasons; ///< What it lacks, and alternatives.
};

/// @brief The options of train_gpt that run a plan, one process for each chip.
[[nodiscard]] Launch launch_of(const Options& options, const shardwright::PlanConfiguration& plan);

} // namespace plan_example
