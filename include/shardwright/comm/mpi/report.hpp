// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sentences that MPI ranks find for a deadline and a mismatch, and who is to blame.

#include <shardwright/comm/fingerprint.hpp>
#include <shardwright/comm/mpi/group.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// What each rank tells of its call once the fingerprints differ: the plain members, the words, and the
/// counts of its blocks for every rank.
class MpiExplanation {
public:
  [[nodiscard]] static std::vector<std::byte> pack(const CollectiveCall& call, std::uint64_t sequence,
                                                   int ranks) {
    Plain plain{call, {}};
    plain.call.in = nullptr;
    plain.call.out = nullptr;
    plain.call.in_blocks = {};
    plain.call.out_blocks = {};
    plain.call.where = {};
    copy_text(plain.text, describe(call, sequence));
    std::vector<std::uint64_t> counts;
    for (int rank = 0; rank < ranks; ++rank)
      counts.push_back(call.in_block(rank).count());
    for (int rank = 0; rank < ranks; ++rank)
      counts.push_back(call.out_block(rank).count());
    std::vector<std::byte> out(sizeof plain + counts.size() * sizeof(std::uint64_t));
    std::memcpy(out.data(), &plain, sizeof plain);
    std::memcpy(out.data() + sizeof plain, counts.data(), counts.size() * sizeof(std::uint64_t));
    return out;
  }

  MpiExplanation(const std::byte* bytes, int ranks) {
    std::memcpy(&plain_, bytes, sizeof plain_);
    std::vector<std::uint64_t> counts(2 * static_cast<std::size_t>(ranks));
    std::memcpy(counts.data(), bytes + sizeof plain_, counts.size() * sizeof(std::uint64_t));
    for (const std::uint64_t count : counts)
      blocks_.push_back(contiguous_block(0, static_cast<std::size_t>(count)));
  }

  /// The call, with blocks of which only the counts are right.
  [[nodiscard]] CollectiveCall call() const {
    CollectiveCall out = plain_.call;
    const std::span<const StridedBlock> all(blocks_);
    out.in_blocks = all.first(blocks_.size() / 2);
    out.out_blocks = all.last(blocks_.size() / 2);
    return out;
  }
  [[nodiscard]] std::string text() const { return plain_.text.data(); }

private:
  struct Plain {
    CollectiveCall call;
    std::array<char, 240> text;
  };
  static_assert(std::is_trivially_copyable_v<Plain>);

  Plain plain_{};
  std::vector<StridedBlock> blocks_;
};

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

[[nodiscard]] inline std::string report_of(const MpiWorld& world, int rank) {
  if (world.node().state(rank) == RankState::unknown)
    return "it runs on another node";
  return world.node().last_call(rank).text();
}

/// "rank 1: ...; rank 2: ...".
[[nodiscard]] inline std::string reports_of(const MpiWorld& world, const std::vector<int>& ranks) {
  std::string out;
  for (const int rank : ranks)
    out += (out.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + report_of(world, rank);
  return out;
}

/// Follows whom each rank waits for, starting from this one; empty unless that leads back.
[[nodiscard]] inline std::string cycle_text(const MpiWorld& world, int start, int next) {
  std::string path = "rank " + std::to_string(start);
  std::string places = "rank " + std::to_string(start) + " is " + report_of(world, start);
  for (int steps = 0; steps < world.size() && next >= 0; ++steps) {
    path += " -> rank " + std::to_string(next);
    if (next == start)
      return "; they wait in a cycle: " + path + " (" + places + ")";
    const MpiLastCall last = world.node().last_call(next);
    if (last.stage != MpiLastCall::Stage::inside)
      return {};
    places += "; rank " + std::to_string(next) + " is " + report_of(world, next);
    // In a collective it waits for all others: in a world of two that is one rank.
    next = last.peer >= 0 ? last.peer : world.size() == 2 ? 1 - next : -1;
  }
  return {};
}

[[nodiscard]] inline std::string late_sentence(const MpiGroup& group, const CollectiveCall& call,
                                               std::uint64_t sequence, const std::vector<int>& missing) {
  const MpiWorld& world = group.world();
  std::string reports = reports_of(world, missing);
  if (!missing.empty())
    reports += cycle_text(world, group.world_rank(group.rank()), missing.front());
  const std::string within = " within " + time_text(world.options().deadline) + ", but ";
  if (sends_or_receives(call.operation))
    return describe(call, sequence) + " on group " + group.name() + " must meet its " +
           (call.operation == Operation::send ? "receive" : "send") + within + "there is none; " + reports +
           " (pair every send with a receive of the same tag, and start one of two that cross asynchronously)";
  return "every rank of group " + group.name() + " must enter " + describe(call, sequence) + within +
         (missing.empty() ? std::string("not all came") : ranks_text(missing) + " did not come: " + reports) +
         " (let all ranks issue the same calls in one order, or raise LaunchOptions::deadline)";
}

/// What differs between the calls of a group: the first thing found.
[[nodiscard]] inline std::string difference_of(const MpiGroup& group,
                                               const std::vector<MpiExplanation>& all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (const std::string what = difference(all[0].call(), all[rank].call(), group.size()); !what.empty())
      return what;
  for (int from = 0; from < group.size(); ++from)
    for (int to = 0; to < group.size(); ++to) {
      const std::size_t sent = all[static_cast<std::size_t>(from)].call().in_block(to).count();
      const std::size_t expected = all[static_cast<std::size_t>(to)].call().out_block(from).count();
      if (sent != expected)
        return "rank " + std::to_string(group.world_rank(from)) + " sends " + std::to_string(sent) +
               " elements to rank " + std::to_string(group.world_rank(to)) + ", which expects " +
               std::to_string(expected);
    }
  return "their sequence numbers differ";
}

/// All ranks with what each of them called, equal calls together.
[[nodiscard]] inline std::string mismatch_sentence(const MpiGroup& group, const MpiAgreement& agreement) {
  std::vector<MpiExplanation> all;
  for (int rank = 0; rank < group.size(); ++rank)
    all.emplace_back(agreement.bytes(rank, group.rank()), group.size());
  std::string calls;
  std::vector<bool> told(all.size(), false);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (told[rank])
      continue;
    std::vector<int> alike;
    for (std::size_t other = rank; other < all.size(); ++other)
      if (all[other].text() == all[rank].text()) {
        alike.push_back(group.world_rank(static_cast<int>(other)));
        told[other] = true;
      }
    calls += (calls.empty() ? "" : "; ") + ranks_text(alike) + " issued " + all[rank].text();
  }
  return "all ranks of group " + group.name() + " must issue the same call, but " +
         difference_of(group, all) + ": " + calls + " (let every rank take the same path to this call)";
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
