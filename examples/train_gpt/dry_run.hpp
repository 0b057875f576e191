// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory and the work of a training run on one rank, without running it.

#include "options.hpp"
#include "training.hpp"

#include <shardwright/train/dry_run.hpp>

#include <iosfwd>

namespace train_gpt {

/// @brief Each dry run that is built has one such object, as each training has.
class CompiledDryRun {
public:
  using Function = shardwright::DryRun (*)(const Options&, int rank);
  CompiledDryRun(TrainingKind kind, Function function);
};

/// @brief Whether the build includes the dry run of the training that the options name.
[[nodiscard]] bool has_dry_run(const Options& options);

/// @brief A step of the training that the options name, as rank `rank` of its mesh.
/// @throws InvalidArgument if the build does not include it.
[[nodiscard]] shardwright::DryRun dry_run(const Options& options, int rank);

/// @brief Dry runs of the ranks given by the options, as tables and, if requested, a file; for several ranks,
/// also checks that their calls agree.
/// @return 0, or 1 if they do not.
[[nodiscard]] int report_dry_run(std::ostream& out, const Options& options);

} // namespace train_gpt
