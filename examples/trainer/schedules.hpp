// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The pipeline schedules that the command line may name.

#include "options.hpp"

#include <shardwright/schedule/schedule.hpp>

#include <string>

namespace trainer {

/// @brief Returns whether the word after --schedule is a file in the CSV format.
[[nodiscard]] bool is_schedule_file(const std::string& word);

/// @brief The schedule that the options name, for their mesh and microbatches.
/// @throws shardwright::InvalidArgument if it does not allow them, with the nearest legal values, or if a
/// file's proof does not hold; shardwright::DataError if a file is malformed.
[[nodiscard]] shardwright::Schedule schedule_of(const RunOptions& options);

/// @brief What the file after --schedule holds beside passes, which is ignored; empty if there is nothing.
[[nodiscard]] std::string ignored_in_schedule(const RunOptions& options);

} // namespace trainer
