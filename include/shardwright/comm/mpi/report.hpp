// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sentences that MPI ranks find for a deadline and a mismatch, and who is to blame.

#include <shardwright/comm/fingerprint.hpp>
#include <shardwright/comm/mpi/group.hpp>
#include <shardwright/comm/report.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The account of its call that each rank gives once the fingerprints differ: the plain members, the words,
/// and the counts of its blocks for every rank.
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
  return whereabouts(ranks, [&](int rank) { return report_of(world, rank); });
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
                        [&](int rank) { return report_of(world, rank); });
  return sends_or_receives(call.operation)
             ? late_message(group.name(), call, sequence, deadline, {}, found)
             : late_collective(group.name(), call, sequence, deadline, missing, found);
}

/// All ranks with what each of them called, equal calls together.
[[nodiscard]] inline std::string mismatch_sentence(const MpiGroup& group, const MpiAgreement& agreement) {
  std::vector<MpiExplanation> all;
  std::vector<IssuedCall> issued;
  for (int rank = 0; rank < group.size(); ++rank) {
    all.emplace_back(agreement.bytes(rank, group.rank()), group.size());
    issued.push_back({group.world_rank(rank), all.back().text()});
  }
  const std::string what = difference_of(
      group.size(), [&](int rank) { return all[static_cast<std::size_t>(rank)].call(); },
      [&](int rank) { return group.world_rank(rank); });
  return mismatch_sentence(group.name(), what.empty() ? "their sequence numbers differ" : what, issued);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
