// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Plans a training run: which parallelism it needs, what it costs, and why.

#include "options.hpp"
#include "report.hpp"
#include "specifications.hpp"

#include <shardwright/plan/plan_text.hpp>
#include <shardwright/plan/search.hpp>
#include <shardwright/schedule/number_text.hpp>

#include <exception>
#include <iostream>
#include <string>

namespace {

namespace sw = shardwright;

int run(const plan_example::Options& options) {
  if (!options.evaluate.empty()) {
    std::cout << plan_example::evaluation_report(plan_example::read_file(options.evaluate.string()));
    return 0;
  }
  const sw::Plan found = sw::search(options.model, options.cluster, options.run, options.space);
  if (!found.found()) {
    std::cerr << "plan: there is none for " << options.model.name << " on " << options.cluster.name
              << " with " << options.run.sequences << " sequences of " << options.run.sequence_length
              << " tokens: " << sw::problem_text(found.problem);
    if (found.problem == sw::PlanProblem::out_of_memory)
      std::cerr << " (" << sw::number_text(options.cluster.chip.memory_bytes / 1e9, 1) << " GB; the least is "
                << sw::number_text(found.cost.memory.total() / 1e9, 1) << " GB, with "
                << sw::plan_text(found.configuration) << ")";
    std::cerr << std::endl;
    return 1;
  }
  std::cout << (options.json ? plan_example::plan_json(options, found)
                             : plan_example::plan_report(options, found));
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  try {
    const plan_example::ParseResult parsed = plan_example::parse(argc, argv);
    if (!parsed.options) {
      (parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.message << std::endl;
      return parsed.exit_code;
    }
    return run(*parsed.options);
  } catch (const std::exception& error) {
    std::cerr << "plan: " << error.what() << std::endl;
    return 1;
  }
}
