// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One training step as events: passes in the order of the schedule, messages, collectives, links.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/cost/problem.hpp>
#include <shardwright/plan/simulate/engine.hpp>
#include <shardwright/plan/simulate/program.hpp>
#include <shardwright/plan/simulate/replica_classes.hpp>
#include <shardwright/plan/simulate/simulation.hpp>
#include <shardwright/schedule/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Simulates one step of a plan.
///
/// Every rank executes its program (program.hpp): passes in the order of its schedule with the exposed part
/// of their traffic after them and the hidden part beside them, messages, gathers and reductions beside the
/// first and last passes, the optimizer. A cell of ranks that step together layer by layer takes the time of
/// its slowest chip. Without contention, stragglers and jitter the step takes the time of `evaluate` without
/// jitter; docs/explanation/planner.md says how closely.
///
/// Time: some microseconds for each pass of each class of replicas, which are one or two unless there is
/// jitter or `fold` is off.
/// @throws InvalidArgument if the plan cannot run (memory aside), an option is out of its range, or all
/// classes together have more than `most_forward_passes`.
[[nodiscard]] inline StepSimulation simulate_step(const ModelSpec& model, const ClusterSpec& cluster,
                                                  const RunSpec& run, const PlanConfiguration& plan,
                                                  const SimulationOptions& options,
                                                  const Calibration& calibration) {
  if (const PlanProblem problem = problem_of(model, cluster, run, plan); problem != PlanProblem::none)
    throw InvalidArgument("Simulation: " + std::string(problem_text(problem)));
  if (!(options.oversubscription >= 1) || !(options.oversubscription <= 1e6))
    throw InvalidArgument(
        "Simulation: the oversubscription must be from 1 to a million (2 halves the bandwidth out of a domain)");
  if (!(options.jitter >= 0) || !(options.jitter <= 10))
    throw InvalidArgument("Simulation: the jitter must be from 0 to 10 (0.01 is a hundredth of a pass)");
  const StepProgram program = step_program(model, cluster, run, plan, calibration, options.even_stages);
  const detail::ReplicaShape shape = detail::replica_shape(cluster, plan);
  const bool shared_egress = options.contention && options.oversubscription > 1;
  const bool fold = options.fold && options.jitter == 0;
  const std::int64_t passes =
      std::int64_t{program.schedule.stages()} * std::max(1, program.schedule.microbatches());
  const auto require_size = [&](std::int64_t replicas) {
    if (replicas > most_forward_passes / passes)
      throw InvalidArgument("Simulation: there must be at most " + std::to_string(most_forward_passes) +
                            " forward passes, but " + std::to_string(replicas) + " replicas with " +
                            std::to_string(passes) +
                            " each are more (take fewer sequences or chips, or leave the jitter out)");
  };
  require_size(fold ? 1 : shape.replicas);
  std::vector<detail::ReplicaClass> classes =
      detail::replica_classes(shape, options.stragglers, fold, shared_egress);
  require_size(static_cast<std::int64_t>(classes.size()));
  return detail::StepSimulator(program, shape, std::move(classes), cluster.domain_count, options).run();
}
[[nodiscard]] inline StepSimulation simulate_step(const ModelSpec& model, const ClusterSpec& cluster,
                                                  const RunSpec& run, const PlanConfiguration& plan,
                                                  const SimulationOptions& options = {}) {
  return simulate_step(model, cluster, run, plan, options, calibration_of(cluster.chip.generation));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
