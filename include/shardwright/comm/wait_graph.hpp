// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Who waits for whom: the ranks to blame for a wait, and rings of waits that can never end.

#include <shardwright/comm/report.hpp>
#include <shardwright/comm/validate.hpp>
#include <shardwright/comm/waiting.hpp>
#include <shardwright/core/hash.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The state of a rank at one moment, as far as it is known.
struct RankWait {
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t {
    elsewhere, ///< It runs on another node, of which nothing is known.
    runs,      ///< It waits for no rank.
    waits,     ///< It waits for others, or did so until it gave up and continued with nothing else.
    stopped    ///< Its process does not run.
  };

  State state = State::runs;
  std::uint64_t version = 0;    ///< Changes when the rank proceeds.
  std::vector<int> waits_for{}; ///< World ranks that must act before it can leave its call.
  std::vector<int> in_flight{}; ///< The same for all of its calls, started ones included.
  Clock::time_point seen = Clock::time_point::max(); ///< Its last sign of life.
};

/// The waits of the ranks of a world, as read without their help.
class WaitGraph {
public:
  virtual ~WaitGraph() = default;
  [[nodiscard]] virtual int ranks() const noexcept = 0;
  [[nodiscard]] virtual RankWait at(int rank) const = 0;
  /// Whether `other`, for which the call of `rank` waits, is inside a call itself and has not begun what that
  /// call needs of it.
  [[nodiscard]] virtual bool in_vain(int rank, int other) const = 0;
};

/// The shortest ring of waits through a rank, which comes first; empty if there is none.
///
/// It can never end: each rank is inside a call that needs something which the next rank has not begun, and
/// begins nothing before its own call ends. All of this holds at one moment, since it is read twice, and no
/// rank of the ring has proceeded in between.
[[nodiscard]] inline std::vector<int> ring_through(const WaitGraph& graph, int start) {
  const auto waits_in_vain = [&](int rank, const RankWait& wait, int next) {
    return wait.state == RankWait::State::waits &&
           std::find(wait.waits_for.begin(), wait.waits_for.end(), next) != wait.waits_for.end() &&
           graph.in_vain(rank, next);
  };
  const auto ranks = static_cast<std::size_t>(graph.ranks());
  std::vector<int> from(ranks, -1), queue{start}, ring;
  std::vector<std::uint64_t> versions(ranks);
  for (std::size_t i = 0; i < queue.size() && ring.empty(); ++i) {
    const RankWait wait = graph.at(queue[i]);
    versions[static_cast<std::size_t>(queue[i])] = wait.version;
    for (const int next : wait.waits_for) {
      if (from[static_cast<std::size_t>(next)] >= 0 || !waits_in_vain(queue[i], wait, next))
        continue;
      from[static_cast<std::size_t>(next)] = queue[i];
      if (next != start) {
        queue.push_back(next);
        continue;
      }
      for (int rank = queue[i]; rank != start; rank = from[static_cast<std::size_t>(rank)])
        ring.insert(ring.begin(), rank);
      ring.insert(ring.begin(), start);
      break;
    }
  }
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const RankWait again = graph.at(ring[i]);
    if (again.version != versions[static_cast<std::size_t>(ring[i])] ||
        !waits_in_vain(ring[i], again, ring[(i + 1) % ring.size()]))
      return {};
  }
  return ring;
}

/// The ranks that keep a call waiting, as far as is known.
struct HoldUp {
  std::vector<int> ranks;     ///< World ranks, the one with the oldest sign of life first.
  std::vector<int> between{}; ///< Ranks that wait for the first of them, beginning with this one's peer.
  std::vector<int> ring{};    ///< Ranks that wait for one another.
  bool sure = false;          ///< The ranks are stopped, or have been silent for long.
};

/// Follows the waits of a rank, for its deadline, to those who are to blame for them.
///
/// A ring through this rank comes first. Otherwise a rank that waits is a victim, and so is one that has just
/// given up waiting: the ranks for which it waits are examined instead. What is left is a process that does
/// not run, or a rank that is in no call: of several, the stopped ones are blamed, else those that have been
/// silent for half of the deadline. Next comes a rank that has stopped polling for messages inside a call,
/// then a ring of others, and last the ranks for which this one waits.
class HoldUpSearch {
public:
  HoldUpSearch(const WaitGraph& graph, int own_rank, std::chrono::nanoseconds deadline)
      : graph_(graph), own_(own_rank), now_(Clock::now()), long_ago_(now_ - deadline / 2),
        from_(static_cast<std::size_t>(graph.ranks()), -1) {}

  /// @param awaited World ranks for which this rank's call waits.
  [[nodiscard]] HoldUp follow(const std::vector<int>& awaited) {
    if (const std::vector<int> ring = ring_through(graph_, own_); !ring.empty())
      return {{ring[1]}, {}, ring};
    reach(awaited, own_);
    std::vector<Found> suspects, silent;
    std::vector<int> elsewhere;
    for (std::size_t i = 0; i < reached_.size(); ++i) {
      const int rank = reached_[i];
      const RankWait wait = graph_.at(rank);
      if (wait.state == RankWait::State::elsewhere)
        elsewhere.push_back(rank);
      else if (wait.state != RankWait::State::waits)
        suspects.push_back({rank, wait.state == RankWait::State::stopped, wait.seen});
      else if (wait.seen < std::min(long_ago_, now_ - starved))
        silent.push_back({rank, false, wait.seen});
      if (wait.state == RankWait::State::waits)
        reach(wait.in_flight, rank);
    }
    HoldUp out;
    out.sure = keep_worst(suspects) || (suspects.empty() && keep_worst(silent));
    for (const Found& one : suspects.empty() ? silent : suspects)
      out.ranks.push_back(one.rank);
    if (!out.sure)
      out.ranks.insert(out.ranks.end(), elsewhere.begin(), elsewhere.end());
    for (std::size_t i = 0; i < reached_.size() && out.ranks.empty(); ++i)
      out.ranks = out.ring = ring_through(graph_, reached_[i]);
    // A rank of the ring may have given up during the first look at it: this rank is not to blame itself.
    if (const auto own = std::find(out.ring.begin(), out.ring.end(), own_); own != out.ring.end()) {
      std::rotate(out.ring.begin(), own, out.ring.end());
      out.ranks = {out.ring[1]};
    }
    if (out.ranks.empty())
      out.ranks = awaited;
    else if (out.ring.empty())
      for (int rank = came_from(out.ranks.front()); rank != own_; rank = came_from(rank))
        out.between.insert(out.between.begin(), rank);
    return out;
  }

private:
  using Clock = RankWait::Clock;
  struct Found {
    int rank;
    bool stopped;
    Clock::time_point seen;
  };

  /// A waiting rank may be without a core for this long.
  static constexpr std::chrono::seconds starved{1};

  void reach(const std::vector<int>& ranks, int by) {
    for (const int rank : ranks)
      if (rank != own_ && came_from(rank) < 0) {
        from_[static_cast<std::size_t>(rank)] = by;
        reached_.push_back(rank);
      }
  }
  [[nodiscard]] int came_from(int rank) const { return from_[static_cast<std::size_t>(rank)]; }

  /// Keeps only the stopped ones, else the silent ones, else all. @return whether these are stopped or
  /// silent.
  [[nodiscard]] bool keep_worst(std::vector<Found>& suspects) const {
    std::sort(suspects.begin(), suspects.end(), [](const Found& one, const Found& other) {
      return std::pair(one.seen, one.rank) < std::pair(other.seen, other.rank);
    });
    std::vector<Found> worst;
    const auto into = std::back_inserter(worst);
    std::copy_if(suspects.begin(), suspects.end(), into, [](const Found& one) { return one.stopped; });
    if (worst.empty())
      std::copy_if(suspects.begin(), suspects.end(), into,
                   [this](const Found& one) { return one.seen < long_ago_; });
    if (worst.empty())
      return false;
    suspects = std::move(worst);
    return true;
  }

  const WaitGraph& graph_;
  int own_;
  Clock::time_point now_;
  Clock::time_point long_ago_;
  std::vector<int> from_;    ///< The predecessor of each rank; -1: none.
  std::vector<int> reached_; ///< In this order.
};

/// For how long some ranks have been in the same calls; it is to be asked repeatedly.
class Standstill {
public:
  [[nodiscard]] std::chrono::nanoseconds of(const WaitGraph& graph, const std::vector<int>& ranks,
                                            RankWait::Clock::time_point now) {
    std::uint64_t seen = mixed(1, ranks.size());
    for (const int rank : ranks)
      seen = mixed(mixed(seen, static_cast<std::uint64_t>(rank)), graph.at(rank).version);
    if (std::exchange(seen_, seen) != seen)
      since_ = now;
    return now - since_;
  }

private:
  std::uint64_t seen_ = 0; ///< Hash of the ranks and their calls; 0: none yet.
  RankWait::Clock::time_point since_{};
};

/// At a deadline, the search is repeated until the ranks to blame are seen to make no progress.
class SecondLook {
public:
  enum class Verdict { not_yet, lasting, moving };

  [[nodiscard]] Verdict look(const WaitGraph& graph, const HoldUp& found, RankWait::Clock::time_point now) {
    if (begin_ == RankWait::Clock::time_point())
      begin_ = now;
    if (standstill_.of(graph, found.ring.empty() ? found.ranks : found.ring, now) >=
            std::chrono::milliseconds(40) ||
        found.sure)
      return Verdict::lasting;
    return now - begin_ < std::chrono::milliseconds(500) ? Verdict::not_yet : Verdict::moving;
  }

private:
  Standstill standstill_;
  RankWait::Clock::time_point begin_{};
};

/// Looks, from time to time, for a ring of waits through a rank, which then need not wait for its deadline.
///
/// The ring must last, with all of its ranks alive: the sender of a message under MPI may not have heard yet
/// that its receive has begun.
class RingWatch {
public:
  enum class Verdict { none, young, lasting };
  static constexpr std::chrono::milliseconds lasting{200};

  [[nodiscard]] Verdict look(const WaitGraph& graph, int rank, RankWait::Clock::time_point now) {
    ring_ = ring_through(graph, rank);
    const std::chrono::nanoseconds lasts = standstill_.of(graph, ring_, now);
    if (ring_.empty())
      return Verdict::none;
    const bool alive = std::all_of(ring_.begin(), ring_.end(),
                                   [&](int each) { return graph.at(each).seen >= now - lasting / 2; });
    return lasts >= lasting && alive ? Verdict::lasting : Verdict::young;
  }
  /// The ranks that keep this one waiting, for a verdict other than none.
  [[nodiscard]] HoldUp found() const { return {{ring_[1]}, {}, ring_}; }

private:
  Standstill standstill_;
  std::vector<int> ring_;
};

/// The sentence about a call that others keep waiting; no time is named if `deadline` is zero.
/// @param awaited World ranks that have not arrived.
/// @param offered The calls that the other side of a message has instead.
/// @param doing Returns what a rank is doing, in words.
template <class Doing>
[[nodiscard]] std::string late_sentence(const std::string& group, const CollectiveCall& call,
                                        std::uint64_t sequence, std::chrono::nanoseconds deadline,
                                        const std::vector<int>& awaited, const HoldUp& hold_up,
                                        const std::string& offered, Doing&& doing) {
  std::string found = whereabouts(hold_up.ranks, doing);
  if (!hold_up.ring.empty()) {
    found = "they wait in a cycle: ";
    for (const int rank : hold_up.ring)
      found += "rank " + std::to_string(rank) + " -> ";
    found += "rank " + std::to_string(hold_up.ring.front()) + " (" + whereabouts(hold_up.ring, doing) + ")";
  }
  if (!hold_up.between.empty())
    found += "; held up by it: " + whereabouts(hold_up.between, doing);
  const std::string what = describe(call, sequence);
  const std::string within = deadline == deadline.zero() ? std::string() : " within " + time_text(deadline);
  if (sends_or_receives(call.operation))
    return what + " on group " + group + " must meet its " +
           (call.operation == Operation::send ? "receive" : "send") + within + ", but " +
           (offered.empty() ? "there is none" : "the other side has only " + offered) + "; " + found +
           " (pair every send with a receive of the same tag, and start one of two that cross asynchronously)";
  const bool only_awaited = std::all_of(hold_up.ranks.begin(), hold_up.ranks.end(), [&](int rank) {
    return std::find(awaited.begin(), awaited.end(), rank) != awaited.end();
  });
  std::string who = "not all arrived";
  if (!hold_up.ranks.empty())
    who = only_awaited ? ranks_text(hold_up.ranks) + " did not arrive: " + found
                       : who + ", held up by " + ranks_text(hold_up.ranks) + ": " + found;
  return "every rank of group " + group + " must enter " + what + within + ", but " + who +
         std::string(same_order_advice);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
