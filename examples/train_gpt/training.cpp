// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Chooses among the compiled trainings.

#include "training.hpp"

#include "dry_run.hpp"

#include <shardwright/core/error.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace train_gpt {
namespace {

template <class Function> using Entries = std::vector<std::pair<TrainingKind, Function>>;

/// The functions in this build, registered by objects in its files.
template <class Function> Entries<Function>& compiled() {
  static Entries<Function> entries;
  return entries;
}

TrainingKind kind_of(const Options& options) {
  return {options.precision, options.zero, options.ring, options.target, options.size.experts > 0};
}

/// Null if the build has none for the options.
template <class Function> Function look_up(const Options& options) {
  const auto& entries = compiled<Function>();
  const auto found =
      std::find_if(entries.begin(), entries.end(),
                   [kind = kind_of(options)](const auto& entry) { return entry.first == kind; });
  return found != entries.end() ? found->second : nullptr;
}

template <class Function> Function find(const Options& options) {
  if (const Function found = look_up<Function>(options))
    return found;
  const TrainingKind kind = kind_of(options);
  if (kind.target == Device::cuda)
    throw shardwright::InvalidArgument(
        "--target cuda must be compiled in, but this build has no CUDA or leaves the training out (set KOKKOS_CUDA_ROOT to a Kokkos with the Cuda backend, and build with cmake --preset cuda && cmake --build --preset cuda)");
  throw shardwright::InvalidArgument(
      "this build must hold the training that the options name, but --precision " +
      std::string(name_of(kind.precision)) + " with --zero " + std::to_string(kind.zero) +
      (kind.ring ? " and --context ring" : "") + (kind.experts ? " and experts" : "") +
      " was left out (configure the build with -DTRAIN_GPT_TRAININGS=all and -DTRAIN_GPT_DRY_RUNS=ON, and build it again)");
}

} // namespace

CompiledTraining::CompiledTraining(TrainingKind kind, Function function) {
  compiled<Function>().emplace_back(kind, function);
}
CompiledDryRun::CompiledDryRun(TrainingKind kind, Function function) {
  compiled<Function>().emplace_back(kind, function);
}

void require_training(const Options& options) {
  static_cast<void>(find<CompiledTraining::Function>(options));
}
RunResult train(const shardwright::HostCommunicator& world, const Options& options,
                const shardwright::ByteDataset& dataset, bool quiet) {
  return find<CompiledTraining::Function>(options)(world, options, dataset, quiet);
}
bool has_dry_run(const Options& options) { return look_up<CompiledDryRun::Function>(options) != nullptr; }
shardwright::DryRun dry_run(const Options& options, int rank) {
  return find<CompiledDryRun::Function>(options)(options, rank);
}

} // namespace train_gpt
