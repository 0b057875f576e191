// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Files of the timelines of all pipelines' ranks in one step.

#include "options.hpp"

#include <shardwright/schedule/schedule.hpp>
#include <shardwright/train/pipeline/timeline.hpp>

#include <vector>

namespace trainer {

/// @brief Writes the files that the options name, from the timelines of all ranks of the world.
///
/// The trace has every pipeline; the drawing has that of the first data and tensor rank, planned with the
/// mean times of its passes and as measured. If a file cannot be written, a warning is printed.
void write_timelines(const RunOptions& options, const shardwright::Schedule& schedule,
                     const std::vector<shardwright::RankTimeline>& world);

} // namespace trainer
