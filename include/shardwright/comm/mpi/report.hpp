// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The error sentences of MPI ranks for mismatches, and what other ranks are doing.

#include <shardwright/comm/call_account.hpp>
#include <shardwright/comm/mpi/group.hpp>
#include <shardwright/comm/report.hpp>

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

/// All ranks with their calls, equal calls grouped.
[[nodiscard]] inline std::string mismatch_sentence(const MpiGroup& group, const MpiAgreement& agreement) {
  const std::string what = "their sequence numbers differ";
  return mismatch_of_accounts(group, what, [&](int rank) { return agreement.head(rank); });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
