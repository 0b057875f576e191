// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The time of a simulated step in which each transfer has its links to itself.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/simulate/program.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/simulation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Runs the program of a pipeline whose transfers share no links, as the costs of a `Simulation`.
class UnsharedStep {
public:
  explicit UnsharedStep(const StepProgram& program)
      : send(program.send_seconds), program_(program),
        simulation_(program.schedule, *this, program.schedule.window()), at_(program.ranks.size()),
        ends_(program.ranks.size() * program.collectives.size()) {}
  UnsharedStep(const UnsharedStep&) = delete; // its simulation refers to it

  /// Infinity if a rank waits forever.
  [[nodiscard]] double seconds() {
    simulation_.run([](int, const Step&, double, double) {});
    double last = simulation_.left() > 0 ? std::numeric_limits<double>::infinity() : 0;
    for (int rank = 0; rank < program_.schedule.ranks(); ++rank)
      last = std::max(last, advance(rank, simulation_.free_from(rank), 0));
    return last;
  }

  /// Seconds of a rank's next step, from the arrival of its inputs on.
  [[nodiscard]] double of(const Step& step) {
    const int rank = program_.schedule.placement().rank_of(step.first.stage, step.first.microbatch);
    const double now = simulation_.free_from(rank);
    const double start = std::max({now, simulation_.arrived(rank, 0), simulation_.arrived(rank, 1)});
    return advance(rank, now, start) - start;
  }
  double send;

private:
  /// Runs a rank's operations to the end of its next passes, or of the step if none is left.
  double advance(int rank, double now, double start) {
    using Kind = StepOperation::Kind;
    const std::vector<StepOperation>& operations = program_.ranks[static_cast<std::size_t>(rank)];
    double* ends = ends_.data() + static_cast<std::size_t>(rank) * program_.collectives.size();
    std::size_t& at = at_[static_cast<std::size_t>(rank)];
    for (bool began = false; at < operations.size(); ++at) {
      const StepOperation& one = operations[at];
      if (began && (one.kind == Kind::send || one.kind == Kind::receive))
        return now;
      if (one.kind == Kind::receive) {
        began = true;
        now = std::max(now, start);
      } else if (one.kind == Kind::join) {
        ends[one.index] = now + program_.collectives[static_cast<std::size_t>(one.index)].seconds;
      } else if (one.kind == Kind::await) {
        now = std::max(now, ends[one.index]);
      } else {
        now += one.seconds; // 0 of a send
      }
    }
    return now;
  }

  const StepProgram& program_;
  Simulation<Schedule, UnsharedStep&> simulation_;
  std::vector<std::size_t> at_; // of each rank, in its operations
  std::vector<double> ends_;    // of collectives, by rank
};

} // namespace detail

/// @brief Seconds of a plan's step as `simulate_step` gives them without contention, in a fifth of its time.
///
/// If there are more than 16 microbatches for each rank, steps of fewer are extended: from a multiple of
/// twice the number of ranks to the next but one, most schedules repeat exactly, and nearly all to within 1%
/// (ZB-H2 with slow sends does not). Time: some 0.3 µs for each forward pass, of which there are at most 16 *
/// pp² * chunks.
/// @throws InvalidArgument if the schedule does not allow the plan's numbers.
[[nodiscard]] inline double step_seconds_unshared(const ModelSpec& model, const ClusterSpec& cluster,
                                                  const RunSpec& run, const PlanConfiguration& plan) {
  const Calibration calibration = calibration_of(cluster.chip.generation);
  const std::int64_t each = std::int64_t{plan.dp} * plan.microbatch, all = run.sequences / each;
  const auto seconds_of = [&](std::int64_t microbatches) {
    RunSpec part = run;
    part.sequences = microbatches * each;
    const StepProgram program = step_program(model, cluster, part, plan, calibration, false, true);
    return detail::UnsharedStep(program).seconds();
  };
  const std::int64_t round = 2 * std::int64_t{plan.pp}, few = all % round + 2 * round, more = few + 2 * round;
  if (all <= 8 * round)
    return seconds_of(all);
  const double seconds = seconds_of(few);
  return seconds +
         static_cast<double>(all - few) / static_cast<double>(more - few) * (seconds_of(more) - seconds);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
