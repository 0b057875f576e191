// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds the ranks to blame for a wait: those at the end of a chain of waits, not those in between.

#include <shardwright/comm/mpi/node.hpp>
#include <shardwright/core/mix.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The ranks that keep a call waiting, as far as this node knows.
struct HoldUp {
  std::vector<int> ranks;   ///< World ranks, the one with the oldest progress first; empty if unknown.
  std::vector<int> between; ///< Ranks that wait for the first of them, beginning with this one's peer.
  std::vector<int> ring;    ///< Ranks that wait for one another, if no other rank is to blame.
  bool sure = false;        ///< The ranks are stopped, or have been silent for long.
};

/// At a deadline, the search is repeated until the ranks to blame are seen to make no progress.
class MpiSecondLook {
public:
  enum class Verdict { not_yet, settled, moving };

  [[nodiscard]] Verdict look(const MpiNode& node, const HoldUp& found,
                             MpiNode::Clock::time_point now) noexcept {
    if (seen_ == 0)
      begin_ = now;
    std::uint64_t seen = mixed(1, found.ring.size());
    for (const int rank : found.ranks)
      seen = mixed(mixed(seen, static_cast<std::uint64_t>(rank)), node.version(rank));
    if (std::exchange(seen_, seen) != seen)
      since_ = now;
    if (found.sure || now - since_ >= std::chrono::milliseconds(40))
      return Verdict::settled;
    return now - begin_ < std::chrono::milliseconds(500) ? Verdict::not_yet : Verdict::moving;
  }

private:
  std::uint64_t seen_ = 0; ///< Hash of the ranks and their calls; 0: none yet.
  MpiNode::Clock::time_point begin_{};
  MpiNode::Clock::time_point since_{};
};

/// Follows the chain of waits from this rank.
///
/// A rank that waits is a victim, and so is one that has just given up waiting: the ranks for which it waits
/// are examined instead. What is left is a process that does not run, or a rank that is in no call: of
/// several, the stopped ones are blamed, else those that have been silent for half of the deadline. Next
/// comes a rank that has stopped polling for messages inside a call, and last a ring.
class MpiBlame {
public:
  MpiBlame(const MpiNode& node, std::chrono::nanoseconds deadline)
      : node_(node), now_(MpiNode::Clock::now()), long_ago_(now_ - deadline / 2),
        from_(static_cast<std::size_t>(node.ranks()), -1) {}

  /// @param first World ranks for which this rank itself waits.
  [[nodiscard]] HoldUp follow(const std::vector<int>& first) {
    const int start = node_.own_rank();
    for (const int rank : first)
      reach(rank, start);
    std::vector<int> suspects, elsewhere, silent;
    for (std::size_t i = 0; i < reached_.size(); ++i) {
      const int rank = reached_[i];
      if (node_.state(rank) == RankState::unknown)
        elsewhere.push_back(rank);
      else if (!node_.waits(rank) || node_.halted(rank))
        suspects.push_back(rank);
      else {
        if (!node_.gave_up(rank) && node_.last_beat(rank) < std::min(long_ago_, now_ - starved))
          silent.push_back(rank);
        for (const int next : node_.waits_for(rank, true))
          reach(next, rank);
      }
    }
    HoldUp out;
    out.sure = keep_worst(suspects) || (suspects.empty() && keep_worst(silent));
    out.ranks = suspects.empty() ? silent : suspects;
    if (!out.sure)
      out.ranks.insert(out.ranks.end(), elsewhere.begin(), elsewhere.end());
    if (out.ranks.empty() && find_ring(out.ring))
      for (const int rank : out.ring)
        if (rank != start)
          out.ranks.push_back(rank);
    if (out.ring.empty() && !out.ranks.empty())
      for (int rank = came_from(out.ranks.front()); rank != start; rank = came_from(rank))
        out.between.insert(out.between.begin(), rank);
    return out;
  }

private:
  /// A waiting rank may be without a core for this long.
  static constexpr std::chrono::seconds starved{1};

  void reach(int rank, int by) {
    if (rank == node_.own_rank() || came_from(rank) >= 0)
      return;
    from_[static_cast<std::size_t>(rank)] = by;
    reached_.push_back(rank);
  }
  [[nodiscard]] int came_from(int rank) const { return from_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool is_silent(int rank) const noexcept { return node_.last_beat(rank) < long_ago_; }

  /// Keeps only the stopped ones, else the silent ones, else all. @return whether these are stopped or
  /// silent.
  bool keep_worst(std::vector<int>& suspects) const {
    std::stable_sort(suspects.begin(), suspects.end(),
                     [&](int one, int other) { return node_.last_beat(one) < node_.last_beat(other); });
    std::vector<int> worst;
    std::copy_if(suspects.begin(), suspects.end(), std::back_inserter(worst),
                 [&](int rank) { return node_.halted(rank); });
    if (worst.empty())
      std::copy_if(suspects.begin(), suspects.end(), std::back_inserter(worst),
                   [&](int rank) { return is_silent(rank); });
    if (worst.empty())
      return false;
    suspects = std::move(worst);
    return true;
  }

  /// Whether `rank` waits for `other` in vain, because `other` waits in a different call from the one in
  /// which they would meet.
  [[nodiscard]] bool in_vain(int rank, int other) const {
    const MpiLastCall own = node_.last_call(rank), its = node_.last_call(other);
    if (!node_.waits(other))
      return false;
    const bool messages = own.peer >= 0;
    if (own.group_id != its.group_id || messages != (its.peer >= 0))
      return true;
    return messages ? own.operation == its.operation || its.peer != rank || its.tag != own.tag
                    : its.sequence < own.sequence;
  }

  /// The first ring of futile waits; one through this rank if there is one.
  [[nodiscard]] bool find_ring(std::vector<int>& ring) const {
    ring = ring_from(node_.own_rank());
    for (std::size_t i = 0; i < reached_.size() && ring.empty(); ++i)
      ring = ring_from(reached_[i]);
    return !ring.empty();
  }
  /// The shortest path of futile waits from a rank back to itself; empty if there is none.
  [[nodiscard]] std::vector<int> ring_from(int start) const {
    std::vector<int> from(static_cast<std::size_t>(node_.ranks()), -1);
    std::vector<int> queue{start};
    for (std::size_t i = 0; i < queue.size(); ++i)
      for (const int next : node_.waits_for(queue[i], false)) {
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
  MpiNode::Clock::time_point long_ago_;
  std::vector<int> from_;    ///< The predecessor of each rank; -1: none.
  std::vector<int> reached_; ///< In this order.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
