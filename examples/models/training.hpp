// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One run of train_models on the ranks of a world, its results, and the runs that a build holds.

#include "options.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <trainer/compiled.hpp>
#include <trainer/run_result.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace models {

using trainer::NamedTensor;

/// @brief The results of a run, with tensors on the first rank only.
struct RunResult : trainer::RunResult {
  std::vector<NamedTensor> initial;   ///< Parameters before the first step, if the options ask for a dump.
  std::vector<NamedTensor> data;      ///< Samples of all steps, in order, in a dump only.
  std::map<std::string, double> rule; ///< Of routers and their losses, by name; empty without experts.
  std::int64_t heads = 0;             ///< Of attention, which the shapes do not reveal.
};

/// @brief Each training that is built has one such object; the units are in examples/CMakeLists.txt.
using CompiledTraining =
    trainer::Compiled<TrainingKind, RunResult (*)(const shardwright::HostCommunicator&, const Options&, bool,
                                                  const trainer::OnStep&)>;
using CompiledDryRun = trainer::CompiledDryRun<Options>;

/// @brief Models that the build has.
[[nodiscard]] std::vector<std::string> compiled_models();
/// @brief The first ZeRO stage that the build has for a precision.
[[nodiscard]] int compiled_zero(trainer::Precision precision);

/// @brief Runs the training selected by the options. Collective; rank 0 reports unless `quiet`.
/// @throws InvalidArgument if the build does not include it.
[[nodiscard]] RunResult train(const shardwright::HostCommunicator& world, const Options& options, bool quiet,
                              const trainer::OnStep& on_step = {});
/// @brief Returns its memory and work on one rank, without running it. @throws InvalidArgument as train.
[[nodiscard]] shardwright::DryRun dry_run(const Options& options, int rank);

} // namespace models
