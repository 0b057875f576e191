// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The trainings of train_gpt that a build holds.

#include "options.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/io/token_rows.hpp>
#include <trainer/compiled.hpp>
#include <trainer/run_result.hpp>

#include <string>
#include <vector>

namespace train_gpt {

/// @brief The results of a run.
struct RunResult : trainer::RunResult {
  std::string sample;
  std::vector<std::string> answers; ///< The last lines of --sample-every.
};

/// @brief Each training that is built has one such object; the table is in examples/CMakeLists.txt, and
/// TRAIN_GPT_TRAININGS selects from it.
using CompiledTraining =
    trainer::Compiled<TrainingKind, RunResult (*)(const shardwright::HostCommunicator&, const Options&,
                                                  const shardwright::TokenRows&, bool)>;
using CompiledDryRun = trainer::CompiledDryRun<Options>;

/// @throws InvalidArgument if the build does not include the training selected by the options.
void require_training(const Options& options);
/// @brief Runs the training selected by the options. Collective; rank 0 reports unless `quiet`.
/// @throws InvalidArgument as require_training.
[[nodiscard]] RunResult train(const shardwright::HostCommunicator& world, const Options& options,
                              const shardwright::TokenRows& dataset, bool quiet);
/// @brief Counts a step of that training, as rank `rank` of its mesh.
/// @throws InvalidArgument as require_training.
[[nodiscard]] shardwright::DryRun dry_run(const Options& options, int rank);

} // namespace train_gpt
