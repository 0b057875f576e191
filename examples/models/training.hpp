// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One run of train_models on the ranks of a world, its results, and the runs that a build supports.

#include "options.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/nn/experts/report.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/step/report.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace models {

/// @brief Numbers of a parameter or of data, whole, in double.
struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

/// @brief The results of a run, with tensors on the first rank only.
struct RunResult {
  std::vector<double> losses, gradient_norms;
  /// Of each step and each layer with experts, on every rank; empty for models without experts.
  std::vector<std::vector<shardwright::ExpertLoadReport>> loads;
  std::vector<NamedTensor> initial;    ///< Parameters before the first step, if the options ask for a dump.
  std::vector<NamedTensor> data;       ///< Samples of all steps, in order, in a dump only.
  std::vector<NamedTensor> parameters; ///< Final values, including the biases of experts.
  std::map<std::string, double> rule;  ///< Of routers and their losses, by name; empty without experts.
  std::int64_t heads = 0;              ///< Of attention, which the shapes do not reveal.
};

/// @brief The callbacks of a run, called on every rank.
struct Watch {
  std::function<void(const shardwright::StepReport&)> on_step;
  /// After on_step, for models with experts.
  std::function<void(std::span<const shardwright::ExpertLoadReport>)> on_loads;
  /// After the last step, before anything else.
  std::function<void(const shardwright::PoolStatistics&)> on_end;
};

/// @brief The properties that distinguish one compiled training from another.
struct TrainingKind {
  std::string model;
  std::string precision;
  int zero = 0;

  friend bool operator==(const TrainingKind&, const TrainingKind&) = default;
};

/// @brief Registers a training with train(); its objects are in the unit of each model.
class CompiledTraining {
public:
  using Function = RunResult (*)(const shardwright::HostCommunicator&, const Options&, const Watch&);
  CompiledTraining(const TrainingKind& kind, Function function);
};
/// @brief The same for dry_run().
class CompiledDryRun {
public:
  using Function = shardwright::DryRun (*)(const Options&, int rank);
  CompiledDryRun(const TrainingKind& kind, Function function);
};

/// @brief Models that the build has.
[[nodiscard]] std::vector<std::string> compiled_models();
/// @brief The first ZeRO stage that the build has for a precision.
[[nodiscard]] int compiled_zero(const std::string& precision);

/// @brief Runs the training selected by the options. Collective.
/// @throws InvalidArgument if the build does not include it.
[[nodiscard]] RunResult train(const shardwright::HostCommunicator& world, const Options& options,
                              const Watch& watch = {});
/// @brief Returns its memory and work on one rank, without running it. @throws InvalidArgument as train.
[[nodiscard]] shardwright::DryRun dry_run(const Options& options, int rank);

} // namespace models
