// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sentences that MPI ranks find for a deadline and a mismatch, and who is to blame.

#include <shardwright/comm/call_account.hpp>
#include <shardwright/comm/mpi/group.hpp>
#include <shardwright/comm/report.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// World ranks that a call of this rank waits for, as far as they can be known: `direct` marks the ranks of
/// the group whose messages are missing, which may themselves wait for others.
[[nodiscard]] inline std::vector<int> missing_ranks(const MpiGroup& group, const CollectiveCall& call,
                                                    std::uint64_t sequence, const std::vector<bool>& direct) {
  if (sends_or_receives(call.operation))
    return {group.world_rank(call.root)};
  std::vector<int> blamed;
  std::vector<int> absent;
  std::vector<int> silent;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank())
      continue;
    const int world_rank = group.world_rank(rank);
    const MpiLastCall last = group.world().node().last_call(world_rank);
    const bool here = last.stage != MpiLastCall::Stage::none && last.group_id == group.id() &&
                      !sends_or_receives(last.operation);
    const bool entered = here && last.sequence >= sequence;
    const bool waited_for = direct[static_cast<std::size_t>(rank)];
    if (waited_for)
      silent.push_back(world_rank);
    if (!entered)
      absent.push_back(world_rank);
    if (!entered && (waited_for || here))
      blamed.push_back(world_rank);
  }
  if (!blamed.empty())
    return blamed;
  return absent.empty() ? silent : absent;
}

/// "rank 1: ...; rank 2: ...".
[[nodiscard]] inline std::string reports_of(const MpiWorld& world, const std::vector<int>& ranks) {
  return whereabouts(ranks, [&](int rank) { return world.node().report(rank); });
}

/// Follows whom each rank waits for, starting from one that waits for `next`; empty unless that leads back.
[[nodiscard]] inline std::vector<int> wait_ring(const MpiWorld& world, int start, int next) {
  std::vector<int> ring{start};
  while (next >= 0 && next != start && static_cast<int>(ring.size()) < world.size()) {
    const MpiLastCall last = world.node().last_call(next);
    if (last.stage != MpiLastCall::Stage::inside)
      return {};
    ring.push_back(next);
    // In a collective it waits for all others: in a world of two that is one rank.
    next = last.peer >= 0 ? last.peer : world.size() == 2 ? 1 - next : -1;
  }
  return next == start ? ring : std::vector<int>();
}

[[nodiscard]] inline std::string late_sentence(const MpiGroup& group, const CollectiveCall& call,
                                               std::uint64_t sequence, const std::vector<int>& missing) {
  const MpiWorld& world = group.world();
  const std::chrono::nanoseconds deadline = world.options().deadline;
  std::string found = reports_of(world, missing);
  if (!missing.empty())
    found += cycle_text(wait_ring(world, group.world_rank(group.rank()), missing.front()),
                        [&](int rank) { return world.node().report(rank); });
  return sends_or_receives(call.operation)
             ? late_message(group.name(), call, sequence, deadline, {}, found)
             : late_collective(group.name(), call, sequence, deadline, missing, found);
}

/// All ranks with what each of them called, equal calls together.
[[nodiscard]] inline std::string mismatch_sentence(const MpiGroup& group, const MpiAgreement& agreement) {
  const std::string what = "their sequence numbers differ";
  return mismatch_of_accounts(group, what, [&](int rank) { return agreement.bytes(rank, group.rank()); });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
