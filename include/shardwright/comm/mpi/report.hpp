// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The error sentences of MPI ranks for deadlines and mismatches, and whom they blame.

#include <shardwright/comm/call_account.hpp>
#include <shardwright/comm/mpi/blame.hpp>
#include <shardwright/comm/mpi/group.hpp>
#include <shardwright/comm/report.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Whether a rank is known to have entered a collective of a group, or a later one.
[[nodiscard]] inline bool has_entered(const MpiGroup& group, std::uint64_t sequence, int world_rank) {
  const MpiLastCall last = group.world().node().last_call(world_rank);
  return last.stage != MpiLastCall::Stage::none && last.group_id == group.id() &&
         !sends_or_receives(last.operation) && last.sequence >= sequence;
}

/// "rank 1: ...; rank 2: ...".
[[nodiscard]] inline std::string reports_of(const MpiWorld& world, const std::vector<int>& ranks) {
  return whereabouts(ranks, [&](int rank) { return world.node().report(rank); });
}

[[nodiscard]] inline std::string late_sentence(const MpiGroup& group, const CollectiveCall& call,
                                               std::uint64_t sequence, const HoldUp& hold_up) {
  const MpiWorld& world = group.world();
  const std::chrono::nanoseconds deadline = world.options().deadline;
  const auto report = [&](int rank) { return world.node().report(rank); };
  // A ring already describes its ranks.
  std::string found =
      hold_up.ring.empty() ? reports_of(world, hold_up.ranks) : cycle_text(hold_up.ring, report).substr(2);
  if (!hold_up.between.empty())
    found += "; held up by it: " + reports_of(world, hold_up.between);
  if (sends_or_receives(call.operation))
    return late_message(group.name(), call, sequence, deadline, {}, found);
  const std::vector<int>& members = group.channel().world_ranks;
  const bool members_only = std::all_of(hold_up.ranks.begin(), hold_up.ranks.end(), [&](int rank) {
    return std::find(members.begin(), members.end(), rank) != members.end();
  });
  if (members_only)
    return late_collective(group.name(), call, sequence, deadline, hold_up.ranks, found);
  return held_up_collective(group.name(), call, sequence, deadline, hold_up.ranks, found);
}

/// All ranks with their calls, equal calls grouped.
[[nodiscard]] inline std::string mismatch_sentence(const MpiGroup& group, const MpiAgreement& agreement) {
  const std::string what = "their sequence numbers differ";
  return mismatch_of_accounts(group, what, [&](int rank) { return agreement.head(rank); });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
