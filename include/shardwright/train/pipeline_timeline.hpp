// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What the ranks of a pipeline did in one run, and when.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/schedule/action.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief What a rank spends time on.
enum class PipelineWork : std::uint8_t {
  compute,    ///< The action itself.
  wait_input, ///< Waiting for what the action needs of another rank.
  wait_send,  ///< Waiting for a free slot to send what the action made, or for the last sends.
};

/// @brief One span of a rank's time, in seconds since the common start of the run.
struct PipelineEvent {
  PipelineWork work = PipelineWork::compute;
  Action action{};
  double begin_seconds = 0;
  double end_seconds = 0;
};

/// @brief A rank's events in their order; a wait that did not have to wait leaves none.
using RankTimeline = std::vector<PipelineEvent>;

/// @brief The timelines of all ranks, in rank order, on every rank. Collective.
[[nodiscard]] inline std::vector<RankTimeline> gather_timelines(HostCommunicator ranks,
                                                                const RankTimeline& own) {
  static_assert(std::is_trivially_copyable_v<PipelineEvent>);
  const auto count = static_cast<std::size_t>(ranks.size());
  const std::vector<std::uint64_t> bytes{own.size() * sizeof(PipelineEvent)};
  std::vector<std::uint64_t> each(count);
  ranks.all_gather(bytes, each);
  std::vector<std::size_t> counts(each.begin(), each.end());
  std::size_t total = 0;
  for (const std::size_t one : counts)
    total += one;
  std::vector<std::uint8_t> packed(bytes.front());
  if (!packed.empty())
    std::memcpy(packed.data(), own.data(), packed.size());
  std::vector<std::uint8_t> all(total);
  ranks.all_gather(packed, all, std::span<const std::size_t>(counts));
  std::vector<RankTimeline> out(count);
  std::size_t offset = 0;
  for (std::size_t rank = 0; rank < count; ++rank) {
    out[rank].resize(counts[rank] / sizeof(PipelineEvent));
    if (counts[rank] != 0)
      std::memcpy(out[rank].data(), all.data() + offset, counts[rank]);
    offset += counts[rank];
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
