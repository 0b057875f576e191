// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Chooses among the compiled trainings.

#include "training.hpp"

#include <shardwright/core/error.hpp>

#include <algorithm>
#include <string>

namespace train_gpt {
namespace {

/// The name of a training in TRAIN_GPT_TRAININGS.
std::string build_name(const TrainingKind& kind) {
  std::string out;
  const auto add = [&](const std::string& word) { out += (out.empty() ? "" : "_") + word; };
  if (kind.reproducible)
    add("reproducible");
  if (kind.precision != Precision::fp32)
    add(std::string(name_of(kind.precision)));
  if (kind.ring)
    add("ring");
  if (kind.experts)
    add("experts");
  if (kind.adapters)
    add("lora");
  if (kind.base != Base::whole)
    add(std::string(name_of(kind.base)));
  if (kind.zero > 0)
    add("zero" + std::to_string(kind.zero));
  return out.empty() ? "fp32" : out;
}

template <class Compiled> auto find(const Options& options) {
  const TrainingKind kind = options.kind();
  if (const auto found = Compiled::find(kind))
    return found;
  if (kind.target == Device::cuda)
    throw shardwright::InvalidArgument(
        "--target cuda must be compiled in, but this build has no CUDA or leaves the training out (set KOKKOS_CUDA_ROOT to a Kokkos with the Cuda backend, and build with cmake --preset cuda && cmake --build --preset cuda)");
  std::string names = SHARDWRIGHT_TRAININGS "," + build_name(kind);
  std::replace(names.begin(), names.end(), ',', ';');
  const std::string folder = SHARDWRIGHT_BINARY_DIR;
  throw shardwright::InvalidArgument(
      "this build must hold the training that the options name, but --precision " +
      std::string(name_of(kind.precision)) + " with --zero " + std::to_string(kind.zero) +
      (kind.reproducible ? " and --reproducible" : "") + (kind.ring ? " and --context ring" : "") +
      (kind.experts ? " and experts" : "") + (kind.adapters ? " and --lora" : "") +
      (kind.base == Base::whole ? "" : " and --quantize-base " + std::string(name_of(kind.base))) +
      " was left out (to build it, run: cmake -B " + folder + " -DTRAIN_GPT_TRAININGS=\"" + names +
      "\" -DTRAIN_GPT_DRY_RUNS=ON && cmake --build " + folder + " --target " + std::string(options.program) +
      ")");
}

} // namespace

void require_training(const Options& options) { static_cast<void>(find<CompiledTraining>(options)); }
RunResult train(const shardwright::HostCommunicator& world, const Options& options,
                const shardwright::TokenRows& dataset, bool quiet) {
  return find<CompiledTraining>(options)(world, options, dataset, quiet);
}
shardwright::DryRun dry_run(const Options& options, int rank) {
  return find<CompiledDryRun>(options)(options, rank);
}

} // namespace train_gpt
