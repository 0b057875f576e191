// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory and the work of a training on one rank, without running it.

#include "options.hpp"
#include "training.hpp"

#include <shardwright/train/dry_run.hpp>

#include <iosfwd>

namespace train_gpt {

/// @brief The dry run of a training, with parameters of `Element`, sharded by `Zero`, and attention over
/// cp by `Context`.
template <class Element, class Zero, class Context = shardwright::AllToAllContext,
          class Target = shardwright::DefaultTarget>
[[nodiscard]] shardwright::DryRun dry_run_as(const Options& options, int rank);

/// @brief One object of it stands in each dry_run_<name>.cpp, beside training_<name>.cpp.
class CompiledDryRun {
public:
  using Function = shardwright::DryRun (*)(const Options&, int rank);
  CompiledDryRun(TrainingKind kind, Function function);
};

/// @brief A step of the training that the options name, as rank `rank` of its mesh.
/// @throws InvalidArgument where the build leaves it out.
[[nodiscard]] shardwright::DryRun dry_run(const Options& options, int rank);

/// @brief Dry runs of the ranks that the options name, as tables and, where they say so, a file; of several
/// ranks, whether their calls agree. @return 0, or 1 where they do not.
[[nodiscard]] int report_dry_run(std::ostream& out, const Options& options);

} // namespace train_gpt
