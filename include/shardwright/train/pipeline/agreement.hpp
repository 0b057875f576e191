// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks that all ranks of a pipeline were given the same schedule.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/schedule/schedule.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The properties of a schedule that ranks compare: numbers for the error message, and FNV-1a over every
/// step.
[[nodiscard]] inline std::array<std::uint64_t, 4> schedule_fingerprint(const Schedule& schedule) {
  Fnv1a hash;
  hash.add(schedule.name());
  const StagePlacement& placement = schedule.placement();
  for (const int value : {static_cast<int>(placement.order), placement.turn, schedule.window().receive_ahead,
                          schedule.window().sends_in_flight})
    hash.add(static_cast<std::uint64_t>(value));
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    hash.add(std::uint64_t{schedule.steps(rank).size()});
    for (const Step& step : schedule.steps(rank)) {
      hash.add(static_cast<std::uint64_t>(step.size()));
      for (int i = 0; i < step.size(); ++i)
        for (const int value : {static_cast<int>(step[i].pass), step[i].stage, step[i].microbatch})
          hash.add(static_cast<std::uint64_t>(value));
    }
  }
  return {static_cast<std::uint64_t>(schedule.stages()), static_cast<std::uint64_t>(schedule.ranks()),
          static_cast<std::uint64_t>(schedule.microbatches()), hash.value()};
}

/// Checks the schedule, since ranks with different schedules would wait for messages that never arrive.
/// Collective.
inline void require_one_schedule(HostCommunicator ranks, const Schedule& schedule) {
  const std::array<std::uint64_t, 4> own = schedule_fingerprint(schedule);
  std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(own, all);
  const auto text = [](const std::uint64_t* numbers) {
    return std::to_string(numbers[0]) + " stages on " + std::to_string(numbers[1]) + " ranks with " +
           std::to_string(numbers[2]) + " microbatches";
  };
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const std::uint64_t* theirs = all.data() + own.size() * static_cast<std::size_t>(rank);
    if (std::equal(theirs, theirs + own.size(), all.data()))
      continue;
    throw ConfigurationMismatch(
        "PipelineRunner: all ranks must pass the same schedule, but rank " + std::to_string(rank) +
            " of the pipeline has " + text(theirs) + " and rank 0 has " + text(all.data()) +
            (std::equal(theirs, theirs + 3, all.data()) ? " in another order or with another window" : "") +
            " (read the schedule from one configuration)",
        {.rank = ranks.world_rank(ranks.rank()), .group = ranks.name(), .operation = "PipelineRunner"});
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
