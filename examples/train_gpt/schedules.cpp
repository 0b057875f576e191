// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief From the words of the command line to a schedule.

#include "schedules.hpp"

#include <shardwright/schedule/named_schedule.hpp>

namespace train_gpt {

shardwright::Schedule schedule_of(const Options& options) {
  return shardwright::make_schedule(options.schedule, options.extent("pp"), options.accumulation,
                                    options.chunks);
}

} // namespace train_gpt
