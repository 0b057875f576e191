// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One training run of train_gpt on the ranks of a world, and its results.

#include "options.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/io/byte_dataset.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

/// @brief The loss and the gradient norm of one optimizer step, the same on every rank.
struct StepRecord {
  double loss = 0; ///< Nats per byte.
  double gradient_norm = 0;
};

/// @brief A parameter's final values, whole; on the first rank only.
struct FinalParameter {
  std::string name;
  std::vector<double> values;
};

/// @brief The results of a run.
struct RunResult {
  std::vector<StepRecord> steps;
  double validation_loss = 0;             ///< Of the final parameters, in nats per byte.
  std::vector<FinalParameter> parameters; ///< Filled if the options ask for verification.
  std::string sample;
  double seconds = 0;
  bool stopped = false; ///< Before its last step, by a signal or an option.
  std::int64_t pool_allocations =
      0; ///< Blocks that the memory pool allocated from the system after the second step.
};

/// @brief The properties that distinguish one compiled training from another.
struct TrainingKind {
  Precision precision = Precision::fp32;
  int zero = 0;
  bool ring = false;
  Device target = Device::host;
  bool experts = false;

  friend bool operator==(const TrainingKind&, const TrainingKind&) = default;
};

/// @brief Each training that is built has one such object, which registers it with train(); the table is in
/// examples/CMakeLists.txt, and TRAIN_GPT_TRAININGS selects from it.
class CompiledTraining {
public:
  using Function = RunResult (*)(const shardwright::HostCommunicator&, const Options&,
                                 const shardwright::ByteDataset&, bool);
  CompiledTraining(TrainingKind kind, Function function);
};

/// @throws InvalidArgument if the build does not include the training selected by the options.
void require_training(const Options& options);
/// @brief Runs it.
/// @throws InvalidArgument as require_training.
[[nodiscard]] RunResult train(const shardwright::HostCommunicator& world, const Options& options,
                              const shardwright::ByteDataset& dataset, bool quiet);

} // namespace train_gpt
