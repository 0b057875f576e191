// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What --dry-run prints.

#include "options.hpp"

#include <shardwright/train/dry_run.hpp>

#include <functional>
#include <iosfwd>
#include <string>

namespace trainer {

/// @brief Dry runs of the ranks given by the options, as tables and, if requested, a file; for several ranks,
/// also checks that their calls agree.
/// @param about sizes, precision and batch of the model, for the first line
/// @param dry_run counts a step as a rank of the mesh
/// @return 0, or 1 if the calls disagree.
[[nodiscard]] int report_dry_run(std::ostream& out, const RunOptions& options, const std::string& about,
                                 const std::function<shardwright::DryRun(int rank)>& dry_run);

} // namespace trainer
