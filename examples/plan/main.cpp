// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Plans a training run: which parallelism it needs, what it costs, and why.

#include "options.hpp"
#include "report.hpp"
#include "simulation.hpp"

#include <shardwright/io/checked_output.hpp>
#include <shardwright/io/write_text.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/cost/timetable.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/schedule/text/number_text.hpp>
#include <shardwright/schedule/text/svg_drawing.hpp>

#include <exception>
#include <iostream>
#include <span>
#include <string>

namespace {

namespace sw = shardwright;

int run(const plan_example::Options& options) {
  if (!options.evaluate.empty()) {
    std::cout << (options.json ? plan_example::evaluation_json(options.evaluate.string())
                               : plan_example::evaluation_report(options.evaluate.string()));
    return 0;
  }
  if (options.sweep) {
    const sw::Sweep swept = plan_example::sweep_of(options);
    std::cout << (options.json ? plan_example::sweep_json(options, swept)
                               : plan_example::sweep_report(options, swept));
    return 0;
  }
  const plan_example::Study study = plan_example::study_of(options, options.json);
  const sw::Plan& found = study.best;
  const bool simulates = options.simulate && found.found();
  const plan_example::SimulatedPlan simulated =
      simulates ? plan_example::simulate_plan(options, found) : plan_example::SimulatedPlan{};
  if (options.json)
    std::cout << (simulates
                      ? plan_example::with_simulation(plan_example::plan_json(options, study), simulated)
                      : plan_example::plan_json(options, study));
  else if (found.found())
    std::cout << plan_example::plan_report(options, study)
              << (simulates ? plan_example::simulation_report(options, found, simulated) : std::string());
  if (simulates)
    for (const std::string& file : plan_example::write_timelines(options, found, simulated))
      std::cerr << "wrote " << file << std::endl;
  if (!found.found()) {
    std::cerr << "plan: " << plan_example::no_plan_report(options, study) << std::endl;
    return 1;
  }
  if (!options.svg.empty()) {
    const sw::Timetable table = sw::plan_timetable(found.configuration, options.run, found.cost);
    const std::string title =
        std::string(options.model.name) + " on " + std::string(options.cluster.name) + ", one pipeline";
    sw::write_text(options.svg,
                   sw::draw_svg(std::span(&table, 1), {title, sw::plan_text(found.configuration), "s"}));
    std::cerr << "wrote " << options.svg.string() << std::endl;
  }
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  try {
    const plan_example::ParseResult parsed = plan_example::parse(argc, argv);
    if (!parsed.options) {
      (parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.message << std::endl;
      return sw::checked_output("plan", parsed.exit_code);
    }
    return sw::checked_output("plan", run(*parsed.options));
  } catch (const std::exception& error) {
    std::cerr << "plan: " << error.what() << std::endl;
    return 1;
  }
}
