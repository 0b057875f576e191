// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory and the work of a step of a task on one rank, without running it.

#include "run_parts.hpp"

#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/dry_run/counting_target.hpp>

namespace trainer {

/// @brief Two steps of a task on a counting target. Only the second counts, as the first has no optimizer
/// state yet.
template <class Task> [[nodiscard]] sw::DryRun dry_run_of(const typename Task::Options& options, int rank) {
  return sw::dry_run(options.mesh_ranks(), rank, [&](const sw::HostCommunicator& world) {
    RunParts<Task> run(world, options);
    typename Task::template Batches<RunParts<Task>> batches(run, options, {});
    for (int step = 0; step < 2; ++step) {
      sw::count_anew();
      static_cast<void>(
          run.training.step([&](std::int64_t at) { return batches.training(at); }, options.learning_rate));
    }
  });
}

} // namespace trainer
