// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tracks the cores on which ranks run, and spreads ranks that share one.

#include <shardwright/comm/cores.hpp>
#include <shardwright/core/config.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The cores of the ranks' threads.
///
/// More ranks than cores: ranks that wake together are put wherever there is room at that moment: three of
/// four on one core is common, makes a collective twice as slow, and lasts until the scheduler rebalances,
/// milliseconds later. So a rank that enters a collective checks first, and leaves a core that has more than
/// its share. A core for each rank: a busy process can still bring two ranks onto one core, since a rank that
/// sleeps lets the scheduler move its peer there. They then stay together, each asleep half of the time,
/// while the other process has a core to itself. So a rank that waits for one on its own core leaves, and
/// competes with the other process for its share of the other core. A rank may run anywhere after it has
/// left: nothing is pinned, and the scheduler continues to balance.
class CoreBalance {
public:
  /// A move takes about 50 µs, and is futile while another process holds the other core.
  static constexpr std::chrono::milliseconds between_departures{1};

  CoreBalance(int ranks, int cores)
      : ranks_(ranks), share_((ranks + cores - 1) / cores),
        places_(std::make_unique<Place[]>(static_cast<std::size_t>(ranks))) {}

  /// Publishes the core of the calling thread, that of `rank`.
  void note(int rank) noexcept { static_cast<void>(noted_core(rank)); }

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
    return core >= 0 && rank != other && place(other).load(std::memory_order_relaxed) == core;
  }

  /// Moves the calling thread, that of `rank`, to a core where fewer ranks than their share were last seen,
  /// unless it did so shortly before.
  /// @return whether it has moved.
  bool depart(int rank, std::chrono::steady_clock::time_point now) noexcept {
    auto& next = places_[static_cast<std::size_t>(rank)].next_departure;
    if (now < next.load(std::memory_order_relaxed))
      return false;
    next.store(now + between_departures, std::memory_order_relaxed);
    return noted_core(rank) >= 0 && leave(rank);
  }

  /// Whether two ranks were last seen on one core, whose caches then hold the buffers of both.
  [[nodiscard]] bool together(int rank, int other) const noexcept {
    return place(rank).load(std::memory_order_relaxed) == place(other).load(std::memory_order_relaxed);
  }

private:
  struct Place {
    std::atomic<int> core{-1};
    std::atomic<std::chrono::steady_clock::time_point> next_departure{};
  };

  [[nodiscard]] std::atomic<int>& place(int rank) const noexcept {
    return places_[static_cast<std::size_t>(rank)].core;
  }
  /// The core of the calling thread, noted as that of `rank`.
  int noted_core(int rank) const noexcept {
    const int core = this_core();
    // Others read it in every wait, so it is written only if it changes.
    if (place(rank).load(std::memory_order_relaxed) != core)
      place(rank).store(core, std::memory_order_relaxed);
    return core;
  }
  /// Number of the ranks below `end` that were last seen on a core.
  [[nodiscard]] int ranks_on(int core, int end) const noexcept {
    int count = 0;
    for (int rank = 0; rank < end; ++rank)
      count += place(rank).load(std::memory_order_relaxed) == core ? 1 : 0;
    return count;
  }

  bool leave(int rank) noexcept {
    return move_to_emptiest_core(
        share_, [this](int core) { return ranks_on(core, ranks_); },
        [this, rank](int core) { place(rank).store(core, std::memory_order_relaxed); });
  }

  int ranks_;
  int share_;
  std::unique_ptr<Place[]> places_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
