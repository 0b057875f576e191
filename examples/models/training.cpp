// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Chooses among the compiled trainings.

#include "training.hpp"

#include <shardwright/core/error.hpp>

#include <algorithm>

namespace models {
namespace {

template <class Compiled> auto find(const Options& options) {
  const TrainingKind kind = options.kind();
  if (const auto found = Compiled::find(kind))
    return found;
  const auto words = [](const TrainingKind& each) {
    return "--precision " + std::string(name_of(each.precision)) + " with --zero " +
           std::to_string(each.zero);
  };
  std::string others;
  for (const auto& [known, function] : Compiled::entries())
    if (known.model == kind.model)
      others += (others.empty() ? "give " : ", or ") + words(known);
  throw shardwright::InvalidArgument("this build must hold the training that the options name, but --model " +
                                     kind.model + ", " + words(kind) + ", was left out (" +
                                     (others.empty() ? "give another model" : others) +
                                     ", or add a line to its file examples/models/training_*.cpp)");
}

} // namespace

std::vector<std::string> compiled_models() {
  std::vector<std::string> out;
  for (const auto& [kind, function] : CompiledTraining::entries())
    if (std::find(out.begin(), out.end(), kind.model) == out.end())
      out.push_back(kind.model);
  std::sort(out.begin(), out.end()); // files register in any order
  return out;
}
int compiled_zero(trainer::Precision precision) {
  for (const auto& [kind, function] : CompiledTraining::entries())
    if (kind.precision == precision)
      return kind.zero;
  return 0;
}

RunResult train(const shardwright::HostCommunicator& world, const Options& options, bool quiet,
                const trainer::OnStep& on_step) {
  return find<CompiledTraining>(options)(world, options, quiet, on_step);
}
shardwright::DryRun dry_run(const Options& options, int rank) {
  return find<CompiledDryRun>(options)(options, rank);
}

} // namespace models
