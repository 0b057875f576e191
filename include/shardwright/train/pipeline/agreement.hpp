// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The numbers of a schedule that all ranks of a pipeline must give alike.

#include <shardwright/core/hash.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/schedule/schedule.hpp>

#include <array>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Ranks with different schedules would wait for messages that never arrive.
[[nodiscard]] inline std::array<GivenNumber, 4> numbers_of(const Schedule& schedule) {
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
  return {GivenNumber("number of stages", schedule.stages()),
          GivenNumber("number of ranks", schedule.ranks()),
          GivenNumber("number of microbatches", schedule.microbatches()),
          GivenNumber("hash of the schedule's order and window", hash.value())};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
