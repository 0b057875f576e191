// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The wait of a finished rank for those that are still running, as long as their processes are alive.

#include <shardwright/comm/mpi/node.hpp>
#include <shardwright/comm/report.hpp>
#include <shardwright/comm/stderr_line.hpp>
#include <shardwright/comm/waiting.hpp>
#include <shardwright/core/hash.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The ranks of a node that an end waits for, and its options.
struct NodeMembers {
  std::shared_ptr<MpiNode> node;
  bool lonely = false; ///< Some other node has only one rank, so no rank can see whether it is alive.
  std::chrono::nanoseconds deadline{};
  std::chrono::nanoseconds notice{};
};

/// Watches the ranks of this node that have not arrived yet, and reports the wait from time to time.
///
/// A running rank has all the time that it needs. One whose process is gone, or has been stopped or invisible
/// for the deadline, will not arrive. Ranks on other nodes are watched by their neighbours.
class MpiEndWait {
public:
  /// @param place The end, as named in sentences: "at the end of launch()".
  MpiEndWait(NodeMembers members, std::string place)
      : members_(std::move(members)), place_(std::move(place)), begin_(Clock::now()), seen_(begin_),
        next_look_(begin_ + period), next_notice_(members_.notice),
        alive_(static_cast<std::size_t>(members_.node->ranks()), begin_) {}

  /// Ranks that will not arrive. Empty: those are on other nodes.
  struct Verdict {
    std::vector<int> ranks;
    std::string found;
  };

  /// To be called repeatedly; `came(rank)` says whether a rank of this node has arrived.
  template <class Came> [[nodiscard]] std::optional<Verdict> look(Came&& came) {
    const Clock::time_point now = Clock::now();
    if (now < next_look_)
      return std::nullopt;
    // A job that was suspended as a whole resumes rank by rank.
    if (now - next_look_ > std::chrono::seconds(1)) {
      std::fill(alive_.begin(), alive_.end(), now);
      seen_ = now;
    }
    next_look_ = now + period;
    const MpiNode& node = *members_.node;
    std::vector<int> awaited, lost;
    bool busy = false;
    for (int rank = 0; rank < node.ranks(); ++rank) {
      if (rank == node.own_rank() || node.state(rank) == RankState::unknown)
        continue;
      const ProcessState process = node.sees(rank) ? node.process(rank) : ProcessState::stopped;
      const bool done = came(rank);
      if (!done)
        awaited.push_back(rank);
      busy = busy || (!done && process == ProcessState::alive);
      Clock::time_point& alive = alive_[static_cast<std::size_t>(rank)];
      if (process == ProcessState::alive || (done && !node.sees(rank)))
        alive = now;
      // A rank that has arrived may be gone because it has passed already.
      const bool at_once = process == ProcessState::gone && !done;
      if (now - alive >
          (at_once ? std::min<std::chrono::nanoseconds>(members_.deadline, 2 * period) : members_.deadline))
        lost.push_back(rank);
    }
    if (!lost.empty())
      return Verdict{lost, whereabouts(lost, [&](int rank) { return report(rank); })};
    if (busy || !members_.lonely)
      seen_ = now;
    if (now - seen_ > members_.deadline)
      return Verdict{
          {},
          "ranks of other nodes, at least one of which no rank here can see, did not arrive within " +
              time_text(members_.deadline)};
    if (members_.notice > std::chrono::nanoseconds::zero() && now - begin_ > next_notice_)
      tell(awaited);
    return std::nullopt;
  }

private:
  using Clock = MpiNode::Clock;
  static constexpr std::chrono::milliseconds period{100};

  [[nodiscard]] std::string report(int rank) const {
    return (members_.node->sees(rank) ? ""
                                      : "its process cannot be seen from here (another PID namespace); ") +
           members_.node->report(rank);
  }

  /// Less and less often: after the notice time, twice that, four times that and so on.
  void tell(const std::vector<int>& awaited) {
    const std::chrono::nanoseconds waited = std::exchange(next_notice_, 2 * next_notice_);
    if (!members_.node->first_to_notice(mixed(~std::uint64_t{0}, static_cast<std::uint64_t>(waited.count()))))
      return;
    write_stderr_line("rank " + std::to_string(members_.node->own_rank()) + " has waited " +
                      time_text(waited) + " " + place_ + " for " +
                      (awaited.empty() ? "ranks of other nodes"
                                       : ranks_text(awaited) + ", still running: " +
                                             whereabouts(awaited, [&](int rank) { return report(rank); })) +
                      " (it waits as long as they are alive)");
  }

  NodeMembers members_;
  std::string place_;
  Clock::time_point begin_;
  Clock::time_point seen_; ///< When a rank that is worth waiting for was last seen.
  Clock::time_point next_look_;
  std::chrono::nanoseconds next_notice_;
  std::vector<Clock::time_point> alive_; ///< When each rank was last seen alive.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
