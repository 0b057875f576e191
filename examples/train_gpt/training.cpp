// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Chooses among the compiled trainings.

#include "training.hpp"

#include <shardwright/core/error.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace train_gpt {
namespace {

using Entry = std::pair<TrainingKind, CompiledTraining::Function>;

std::vector<Entry>& compiled() {
  static std::vector<Entry> entries;
  return entries;
}

} // namespace

CompiledTraining::CompiledTraining(TrainingKind kind, Function function) {
  compiled().emplace_back(kind, function);
}

RunResult train(const shardwright::HostCommunicator& world, const Options& options,
                const shardwright::ByteDataset& dataset, bool quiet) {
  const TrainingKind kind{options.precision, options.zero, options.ring, options.target};
  const auto found = std::find_if(compiled().begin(), compiled().end(),
                                  [&](const Entry& entry) { return entry.first == kind; });
  if (found == compiled().end() && kind.target == Device::cuda)
    throw shardwright::InvalidArgument(
        "train_gpt: --target cuda must be compiled in, but this build has no CUDA or leaves the training out (set KOKKOS_CUDA_ROOT to a Kokkos with the Cuda backend, and build with cmake --preset cuda && cmake --build --preset cuda)");
  if (found == compiled().end())
    throw shardwright::InvalidArgument(
        "train_gpt: this build must hold the training that the options name, but --precision " +
        std::string(name_of(kind.precision)) + " with --zero " + std::to_string(kind.zero) +
        (kind.ring ? " and --context ring" : "") +
        " was left out (configure the build with -DTRAIN_GPT_TRAININGS=all, and build it again)");
  return found->second(world, options, dataset, quiet);
}

} // namespace train_gpt
