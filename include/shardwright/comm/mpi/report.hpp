// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sentences that MPI ranks find for a deadline and a mismatch, and who is to blame.

#include <shardwright/comm/call_account.hpp>
#include <shardwright/comm/mpi/group.hpp>
#include <shardwright/comm/report.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// World ranks that a call of this rank waits for itself: `direct` marks the ranks of the group whose
/// messages are missing. Where there is none, an earlier call comes first, and it waits for all that are not
/// past it.
[[nodiscard]] inline std::vector<int> waited_for(const MpiGroup& group, const CollectiveCall& call,
                                                 std::uint64_t sequence, const std::vector<bool>& direct) {
  if (sends_or_receives(call.operation))
    return {group.world_rank(call.root)};
  std::vector<int> marked, behind;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank())
      continue;
    const int world_rank = group.world_rank(rank);
    if (direct[static_cast<std::size_t>(rank)])
      marked.push_back(world_rank);
    const MpiLastCall last = group.world().node().last_call(world_rank);
    const bool past =
        last.group_id == group.id() && !sends_or_receives(last.operation) &&
        (last.sequence > sequence || (last.sequence == sequence && last.stage == MpiLastCall::Stage::ended));
    if (!past)
      behind.push_back(world_rank);
  }
  return marked.empty() ? behind : marked;
}

[[nodiscard]] inline std::string report_of(const MpiWorld& world, int rank) {
  return world.node().report(rank);
}

/// "rank 1: ...; rank 2: ...".
[[nodiscard]] inline std::string reports_of(const MpiWorld& world, const std::vector<int>& ranks) {
  return whereabouts(ranks, [&](int rank) { return report_of(world, rank); });
}

/// Who keeps a call waiting, as far as the ranks of this node tell.
struct HoldUp {
  std::vector<int> ranks; ///< World ranks: stopped ones, else those that have not moved for longest.
  std::vector<int>
      between; ///< Ranks that wait for the first of them in their turn, beginning with this one's peer.
  std::vector<int> ring; ///< Ranks that wait for one another, where nobody else is to blame.
};

/// Follows whom each rank waits for from one rank on.
///
/// A rank that is inside a call, has lately looked for messages and says whom it waits for is not to blame:
/// those are, or whom they wait for. Only a process that runs can say so, and only lately, so a rank that
/// freezes in a call is found.
class MpiBlame {
public:
  explicit MpiBlame(const MpiWorld& world)
      : node_(world.node()), now_(MpiNode::Clock::now()),
        patience_(std::min<std::chrono::nanoseconds>(world.options().deadline / 2, std::chrono::seconds(2))) {
  }

  [[nodiscard]] HoldUp follow(int start, const std::vector<int>& first) const {
    HoldUp out;
    std::vector<int> from(static_cast<std::size_t>(node_.ranks()), -1);
    std::vector<int> queue, suspects, elsewhere;
    const auto reach = [&](int rank, int by) {
      if (rank == start || from[static_cast<std::size_t>(rank)] >= 0)
        return;
      from[static_cast<std::size_t>(rank)] = by;
      queue.push_back(rank);
    };
    for (const int rank : first)
      reach(rank, start);
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const int rank = queue[i];
      if (node_.state(rank) == RankState::unknown)
        elsewhere.push_back(rank);
      else if (!waits(rank))
        suspects.push_back(rank);
      else
        for (const int next : node_.waits_for(rank))
          reach(next, rank);
    }
    // Those on the way may not have said yet whom they wait for.
    for (int rank = 0; rank < node_.ranks() && suspects.empty(); ++rank)
      if (rank != start && node_.state(rank) == RankState::running && node_.stopped(rank))
        suspects.push_back(rank);
    if (!suspects.empty()) {
      out.ranks = worst_of(std::move(suspects));
      for (int rank = from[static_cast<std::size_t>(out.ranks.front())]; rank >= 0 && rank != start;
           rank = from[static_cast<std::size_t>(rank)])
        out.between.insert(out.between.begin(), rank);
      return out;
    }
    out.ring = ring_from(start);
    for (std::size_t i = 0; i < first.size() && out.ring.empty(); ++i)
      out.ring = ring_from(first[i]);
    out.ranks = out.ring.empty() && !elsewhere.empty() ? elsewhere : first;
    return out;
  }

private:
  /// Whether a rank is inside a call and looks for messages there.
  [[nodiscard]] bool waits(int rank) const {
    return node_.state(rank) == RankState::running &&
           node_.last_call(rank).stage == MpiLastCall::Stage::inside &&
           now_ - node_.last_beat(rank) < patience_ && !node_.stopped(rank);
  }

  /// The stopped ones, else those that have not moved for long, else all; the longest first.
  [[nodiscard]] std::vector<int> worst_of(std::vector<int> suspects) const {
    std::stable_sort(suspects.begin(), suspects.end(),
                     [&](int one, int other) { return node_.last_beat(one) < node_.last_beat(other); });
    std::vector<int> stopped;
    std::copy_if(suspects.begin(), suspects.end(), std::back_inserter(stopped),
                 [&](int rank) { return node_.stopped(rank); });
    if (!stopped.empty())
      return stopped;
    if (now_ - node_.last_beat(suspects.front()) >= patience_)
      std::erase_if(suspects, [&](int rank) { return now_ - node_.last_beat(rank) < patience_; });
    return suspects;
  }

  /// Whether `rank` waits for `other` in vain: both wait, and `other` is not in the call in which they would
  /// meet.
  [[nodiscard]] bool in_vain(int rank, int other) const {
    const MpiLastCall own = node_.last_call(rank), its = node_.last_call(other);
    const bool message = sends_or_receives(own.operation);
    if (own.stage != MpiLastCall::Stage::inside || !waits(other))
      return false;
    if (own.group_id != its.group_id || message != sends_or_receives(its.operation))
      return true;
    return message ? own.operation == its.operation || its.peer != rank || its.tag != own.tag
                   : its.sequence < own.sequence;
  }

  /// The shortest way from a rank along waits in vain that leads back to it; empty where none does.
  [[nodiscard]] std::vector<int> ring_from(int start) const {
    std::vector<int> from(static_cast<std::size_t>(node_.ranks()), -1);
    std::vector<int> queue{start};
    for (std::size_t i = 0; i < queue.size(); ++i)
      for (const int next : node_.waits_for(queue[i])) {
        if (node_.state(next) == RankState::unknown || !in_vain(queue[i], next))
          continue;
        if (next == start) {
          std::vector<int> ring;
          for (int rank = queue[i]; rank != start; rank = from[static_cast<std::size_t>(rank)])
            ring.insert(ring.begin(), rank);
          ring.insert(ring.begin(), start);
          return ring;
        }
        if (from[static_cast<std::size_t>(next)] >= 0)
          continue;
        from[static_cast<std::size_t>(next)] = queue[i];
        queue.push_back(next);
      }
    return {};
  }

  const MpiNode& node_;
  MpiNode::Clock::time_point now_;
  std::chrono::nanoseconds patience_;
};

[[nodiscard]] inline HoldUp hold_up_of(const MpiGroup& group, const std::vector<int>& waits) {
  return MpiBlame(group.world()).follow(group.world_rank(group.rank()), waits);
}

[[nodiscard]] inline std::string late_sentence(const MpiGroup& group, const CollectiveCall& call,
                                               std::uint64_t sequence, const HoldUp& hold_up) {
  const MpiWorld& world = group.world();
  const std::chrono::nanoseconds deadline = world.options().deadline;
  const auto report = [&](int rank) { return report_of(world, rank); };
  std::string found = reports_of(world, hold_up.ranks) + cycle_text(hold_up.ring, report);
  if (!hold_up.between.empty())
    found += "; for it wait in turn: " + reports_of(world, hold_up.between);
  if (sends_or_receives(call.operation))
    return late_message(group.name(), call, sequence, deadline, {}, found);
  return late_collective(group.name(), call, sequence, deadline, hold_up.ranks, found);
}

/// All ranks with what each of them called, equal calls together.
[[nodiscard]] inline std::string mismatch_sentence(const MpiGroup& group, const MpiAgreement& agreement) {
  const std::string what = "their sequence numbers differ";
  return mismatch_of_accounts(group, what, [&](int rank) { return agreement.bytes(rank, group.rank()); });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
