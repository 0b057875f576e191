// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Chooses among the compiled trainings.

#include "training.hpp"

#include <shardwright/core/error.hpp>

#include <algorithm>
#include <utility>

namespace models {
namespace {

/// The functions in this build, registered by objects in its files.
template <class Function> std::vector<std::pair<TrainingKind, Function>>& compiled() {
  static std::vector<std::pair<TrainingKind, Function>> entries;
  return entries;
}

template <class Function> Function find(const Options& options) {
  const TrainingKind kind{options.model, options.precision, options.zero};
  std::string others;
  for (const auto& [known, function] : compiled<Function>()) {
    if (known == kind)
      return function;
    if (known.model == kind.model)
      others += (others.empty() ? "" : ", or ") + std::string("--precision ") + known.precision +
                " with --zero " + std::to_string(known.zero);
  }
  throw shardwright::InvalidArgument("this build must hold the training that the options name, but --model " +
                                     kind.model + " with --precision " + kind.precision + " and --zero " +
                                     std::to_string(kind.zero) + " was left out (give " + others +
                                     ", or add a line to its file examples/models/training_*.cpp)");
}

} // namespace

CompiledTraining::CompiledTraining(const TrainingKind& kind, Function function) {
  compiled<Function>().emplace_back(kind, function);
}
CompiledDryRun::CompiledDryRun(const TrainingKind& kind, Function function) {
  compiled<Function>().emplace_back(kind, function);
}

std::vector<std::string> compiled_models() {
  std::vector<std::string> out;
  for (const auto& [kind, function] : compiled<CompiledTraining::Function>())
    if (std::find(out.begin(), out.end(), kind.model) == out.end())
      out.push_back(kind.model);
  std::sort(out.begin(), out.end()); // files register in any order
  return out;
}
int compiled_zero(const std::string& precision) {
  for (const auto& [kind, function] : compiled<CompiledTraining::Function>())
    if (kind.precision == precision)
      return kind.zero;
  return 0;
}

RunResult train(const shardwright::HostCommunicator& world, const Options& options, const Watch& watch) {
  return find<CompiledTraining::Function>(options)(world, options, watch);
}
shardwright::DryRun dry_run(const Options& options, int rank) {
  return find<CompiledDryRun::Function>(options)(options, rank);
}

} // namespace models
