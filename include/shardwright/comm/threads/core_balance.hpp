// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tracks the cores on which ranks run, and spreads ranks that share one.

#include <shardwright/comm/cores.hpp>
#include <shardwright/core/config.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The cores of the ranks' threads.
///
/// More ranks than cores: ranks that wake together are put wherever there is room at that moment: three of
/// four on one core is common, makes a collective twice as slow, and lasts until the scheduler rebalances,
/// milliseconds later. So a rank that enters a collective checks first, and leaves a core that has more than
/// its share. A core for each rank: a busy process can still bring two ranks onto one core, since a rank that
/// sleeps lets the scheduler move its peer there. They then stay together, each asleep half of the time,
/// while the other process has a core to itself. So a rank that waits for one on its own core leaves, and
/// competes with the other process for its share of the other core. When its time slice there is over, the
/// rank that waits for it fetches it to its own core, which would be idle otherwise, and the two share that
/// core for half of the time for which they had one each: the other process gets its share meanwhile. A rank
/// may run anywhere after it was moved: nothing is pinned, and the scheduler continues to balance.
class CoreBalance {
public:
  using Time = std::chrono::steady_clock::time_point;

  /// A move takes about 50 µs, and is futile while another process holds the other core.
  static constexpr std::chrono::milliseconds between_departures{1};
  /// Bounds of the time for which two ranks share a core after one has fetched the other.
  static constexpr std::chrono::microseconds shortest_stay{500};
  static constexpr std::chrono::milliseconds longest_stay{4};

  CoreBalance(int ranks, int cores)
      : ranks_(ranks), share_((ranks + cores - 1) / cores),
        places_(std::make_unique<Place[]>(static_cast<std::size_t>(ranks))) {}

  /// The calling thread runs the program of `rank` until thread_ends(), so others may fetch it.
  void thread_begins(int rank) noexcept {
    place_of(rank).thread.store(this_thread(), std::memory_order_relaxed);
  }
  /// Waits for a rank that is fetching the thread: its number may belong to another thread afterwards.
  void thread_ends(int rank) noexcept {
    Place& place = place_of(rank);
    while (place.moving.exchange(true, std::memory_order_acquire))
      std::this_thread::yield();
    place.thread.store(0, std::memory_order_relaxed);
    place.moving.store(false, std::memory_order_release);
  }

  /// Publishes the core of the calling thread, that of `rank`, which enters a collective or posts a message.
  void note(int rank) noexcept {
    std::atomic<std::uint64_t>& entered = place_of(rank).entered;
    entered.store(entered.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    static_cast<void>(noted_core(rank));
  }

  /// Moves the calling thread, that of `rank`, if its core has more ranks than its share.
  void settle(int rank) noexcept {
    const int core = noted_core(rank);
    // The first ranks on a core stay, so that two never leave when there is one too many.
    if (core >= 0 && ranks_on(core, rank) >= share_)
      leave(rank);
  }

  /// Whether the calling thread, that of `rank`, runs on the core on which `other` was last seen.
  [[nodiscard]] bool beside(int rank, int other) noexcept {
    const int core = noted_core(rank);
    return core >= 0 && rank != other && core_of(other).load(std::memory_order_relaxed) == core;
  }

  /// Moves the calling thread, that of `rank`, to a core where fewer ranks than their share were last seen,
  /// unless it did so shortly before.
  /// @return whether it has moved.
  bool depart(int rank, Time now) noexcept {
    Place& place = place_of(rank);
    if (now < place.next_departure.load(std::memory_order_relaxed))
      return false;
    place.next_departure.store(now + between_departures, std::memory_order_relaxed);
    place.departed.store(now, std::memory_order_relaxed);
    return noted_core(rank) >= 0 && leave(rank);
  }

  /// Brings the thread of `other` to the core of the calling thread, that of `rank`, which is about to sleep
  /// until `other` has done something, unless that runs. A thread that has just lost its core to another
  /// process would have to wait for a time slice to pass, since the scheduler often leaves it there although
  /// a core is idle. Neither departs until they have shared a core for half of the time for which each had
  /// its own. Ranks depart only when they wait, so those that seldom wait would share a core for longer than
  /// that; for them, the scheduler does better.
  /// @return whether the system agreed to move it.
  bool fetch(int rank, int other, Time now) noexcept {
    Place& peer = place_of(other);
    if (rank == other || !meets_often(rank, now) || peer.moving.exchange(true, std::memory_order_acquire))
      return false;
    const int thread = peer.thread.load(std::memory_order_relaxed);
    const bool fetched = thread != 0 && !occupies_core(thread) && bring_to_this_core(thread);
    if (fetched && !beside(rank, other)) {
      peer.core.store(this_core(), std::memory_order_relaxed);
      stay(place_of(rank), peer, now);
    }
    peer.moving.store(false, std::memory_order_release);
    return fetched;
  }

  /// Before this time, depart() refuses.
  [[nodiscard]] Time next_departure(int rank) const noexcept {
    return place_of(rank).next_departure.load(std::memory_order_relaxed);
  }

  /// Whether two ranks were last seen on one core, whose caches then hold the buffers of both.
  [[nodiscard]] bool together(int rank, int other) const noexcept {
    return core_of(rank).load(std::memory_order_relaxed) == core_of(other).load(std::memory_order_relaxed);
  }

private:
  struct alignas(128) Place {
    std::atomic<int> core{-1};
    std::atomic<int> thread{0};
    std::atomic<bool> moving{false}; ///< A thread is changing the cores on which the rank's thread may run.
    std::atomic<Time> departed{};
    std::atomic<Time> next_departure{};
    // Of the rank's own thread, which writes it in every call: away from what others read in every wait.
    alignas(128) std::atomic<std::uint64_t> entered{0};
    std::atomic<std::uint64_t> slept_in{0}; ///< Value of `entered` at the last sleep, and its time.
    std::atomic<Time> slept{};
    std::atomic<bool> often{false}; ///< What meets_often() found then.
  };

  [[nodiscard]] Place& place_of(int rank) const noexcept { return places_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::atomic<int>& core_of(int rank) const noexcept { return place_of(rank).core; }
  /// The core of the calling thread, noted as that of `rank`.
  int noted_core(int rank) const noexcept {
    const int core = this_core();
    // Others read it in every wait, so it is written only if it changes.
    if (core_of(rank).load(std::memory_order_relaxed) != core)
      core_of(rank).store(core, std::memory_order_relaxed);
    return core;
  }
  /// Number of the ranks below `end` that were last seen on a core.
  [[nodiscard]] int ranks_on(int core, int end) const noexcept {
    int count = 0;
    for (int rank = 0; rank < end; ++rank)
      count += core_of(rank).load(std::memory_order_relaxed) == core ? 1 : 0;
    return count;
  }

  /// Whether the rank has entered at least one collective per time between departures since it last slept in
  /// another one.
  bool meets_often(int rank, Time now) noexcept {
    Place& place = place_of(rank);
    const std::uint64_t entered = place.entered.load(std::memory_order_relaxed);
    const std::uint64_t since = entered - place.slept_in.exchange(entered, std::memory_order_relaxed);
    if (since > 0) {
      const auto time = now - place.slept.exchange(now, std::memory_order_relaxed);
      place.often.store(time <= static_cast<std::int64_t>(since) * between_departures,
                        std::memory_order_relaxed);
    }
    return place.often.load(std::memory_order_relaxed);
  }

  static void stay(Place& a, Place& b, Time now) noexcept {
    const auto apart = now - std::max(a.departed.load(std::memory_order_relaxed),
                                      b.departed.load(std::memory_order_relaxed));
    const Time until = now + std::clamp<std::chrono::nanoseconds>(apart / 2, shortest_stay, longest_stay);
    a.next_departure.store(until, std::memory_order_relaxed);
    b.next_departure.store(until, std::memory_order_relaxed);
  }

  bool leave(int rank) noexcept {
    std::atomic<bool>& moving = place_of(rank).moving;
    if (moving.exchange(true, std::memory_order_acquire))
      return false;
    const bool left = move_away(rank);
    moving.store(false, std::memory_order_release);
    return left;
  }
  bool move_away(int rank) noexcept {
    return move_to_emptiest_core(
        share_, [this](int core) { return ranks_on(core, ranks_); },
        [this, rank](int core) { core_of(rank).store(core, std::memory_order_relaxed); });
  }

  int ranks_;
  int share_;
  std::unique_ptr<Place[]> places_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
