// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The command line of plan as a value.

#include <plan/published/program.hpp>
#include <shardwright/plan/search/situation.hpp>
#include <shardwright/plan/search/space.hpp>
#include <shardwright/plan/simulate/simulation.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <filesystem>
#include <optional>
#include <string>

namespace plan_example {

/// @brief The run to plan, and the form of the answer.
struct Options {
  shardwright::ModelSpec model{};
  shardwright::ClusterSpec cluster{};
  shardwright::RunSpec run{};
  shardwright::SearchSpace space{};
  std::string command; ///< As typed.
  bool fixes = false;  ///< Whether --fix asks for something.
  bool json = false;
  std::optional<shardwright::Resource> sweep; ///< What to vary, instead of one plan.
  std::filesystem::path svg;                  ///< A drawing of the schedule, written if not empty.
  bool simulate = false;                      ///< Whether to simulate a step of the plan too.
  shardwright::SimulationOptions simulation{};
  std::filesystem::path trace;          ///< The simulated step as a trace, written if not empty.
  std::filesystem::path timeline_svg;   ///< The simulated step as a drawing, written if not empty.
  std::filesystem::path measured;       ///< A table of runs of the program, if not empty.
  std::optional<ProgramFactor> program; ///< What these say of it.
  /// The run by a program that is not named, if no option says which program will run.
  std::optional<shardwright::RunSpec> unnamed;
  std::filesystem::path evaluate; ///< A table of runs to evaluate instead of planning, if not empty.
};

/// @brief Options, or a message and the exit code: 0 after --help, 2 after an error.
struct ParseResult {
  std::optional<Options> options;
  std::string message;
  int exit_code = 0;
};

/// @brief Reads the command line and the specifications that it names; never ends the program.
[[nodiscard]] ParseResult parse(int argc, const char* const* argv);

} // namespace plan_example
