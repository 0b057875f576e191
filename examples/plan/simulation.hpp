// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The report of a simulated step, and the files that plan writes about it.

#include "options.hpp"

#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/simulate/simulation.hpp>

#include <string>
#include <vector>

namespace plan_example {

/// @brief Reads "rank=5,factor=2,link=3".
/// @throws command_line::UsageError if it is none.
[[nodiscard]] shardwright::Straggler parse_straggler(const std::string& word);

/// @brief One step of a plan, simulated several times with ever more effects that the cost model omits.
struct SimulatedPlan {
  shardwright::StepSimulation assumed{}; ///< Even stages, no shared links: the assumptions of the cost model.
  shardwright::StepSimulation whole{};   ///< Stages of whole layers.
  shardwright::StepSimulation shared{};  ///< With shared links as well.
  shardwright::StepSimulation asked{};   ///< With stragglers, jitter and oversubscription.
};
[[nodiscard]] SimulatedPlan simulate_plan(const Options& options, const shardwright::Plan& plan);

/// @brief Step times, and which ranks wait for what.
[[nodiscard]] std::string simulation_report(const Options& options, const shardwright::Plan& plan,
                                            const SimulatedPlan& simulated);

/// @brief The JSON of a plan with the simulation added.
[[nodiscard]] std::string with_simulation(const std::string& plan_json, const SimulatedPlan& simulated);

/// @brief Writes the trace and the drawing that the options ask for; returns the names of the files.
/// @throws shardwright::DataError if one cannot be written.
std::vector<std::string> write_timelines(const Options& options, const shardwright::Plan& plan,
                                         const SimulatedPlan& simulated);

} // namespace plan_example
