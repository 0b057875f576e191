// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The pipeline schedules that the command line may name.

#include "options.hpp"

#include <shardwright/schedule/schedule.hpp>

namespace train_gpt {

/// @brief The schedule that the options name, for their mesh and microbatches.
/// @throws shardwright::InvalidArgument where it does not allow them, with the nearest legal values.
[[nodiscard]] shardwright::Schedule schedule_of(const Options& options);

} // namespace train_gpt
