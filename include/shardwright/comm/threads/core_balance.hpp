// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Spreads ranks that share cores evenly over them.

#include <shardwright/core/config.hpp>

#include <atomic>
#include <cstddef>
#include <memory>

#if defined(__linux__)
#include <sched.h>
#endif

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Where the threads of more ranks than cores run.
///
/// Ranks that wake together are put wherever there is room at that moment: three of four on one core is
/// common, makes a collective twice as slow, and lasts until the scheduler looks again, milliseconds later.
/// So a rank that enters a collective looks first, and leaves a core that has more than its share. It may
/// run anywhere after that: nothing is pinned, and the scheduler goes on balancing.
class CoreBalance {
public:
  CoreBalance(int ranks, int cores)
      : ranks_(ranks), share_((ranks + cores - 1) / cores),
        places_(std::make_unique<std::atomic<int>[]>(static_cast<std::size_t>(ranks))) {
    for (int rank = 0; rank < ranks; ++rank)
      place(rank).store(-1, std::memory_order_relaxed);
  }

  /// Moves the calling thread, that of `rank`, if its core has more ranks than its share.
  void settle(int rank) noexcept {
#if defined(__linux__)
    const int core = sched_getcpu();
    if (place(rank).load(std::memory_order_relaxed) != core)
      place(rank).store(core, std::memory_order_relaxed);
    // The first ranks of a core stay, so that two never leave for one too many.
    if (ranks_on(core, rank) >= share_)
      leave(rank, core);
#else
    static_cast<void>(rank);
#endif
  }

  /// Whether two ranks were last seen on one core, whose caches then hold the buffers of both.
  [[nodiscard]] bool together(int rank, int other) const noexcept {
    return place(rank).load(std::memory_order_relaxed) == place(other).load(std::memory_order_relaxed);
  }

private:
  [[nodiscard]] std::atomic<int>& place(int rank) const noexcept {
    return places_[static_cast<std::size_t>(rank)];
  }
  /// Number of the ranks below `end` that were last seen on a core.
  [[nodiscard]] int ranks_on(int core, int end) const noexcept {
    int count = 0;
    for (int rank = 0; rank < end; ++rank)
      count += place(rank).load(std::memory_order_relaxed) == core ? 1 : 0;
    return count;
  }

#if defined(__linux__)
  void leave(int rank, int core) noexcept {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    if (sched_getaffinity(0, sizeof(usable), &usable) != 0)
      return;
    int emptiest = core;
    int fewest = share_;
    for (int other = 0; other < CPU_SETSIZE; ++other) {
      if (!CPU_ISSET(other, &usable))
        continue;
      if (const int count = ranks_on(other, ranks_); count < fewest) {
        fewest = count;
        emptiest = other;
      }
    }
    if (emptiest == core)
      return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(emptiest, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
      return;
    sched_setaffinity(0, sizeof(usable), &usable);
    place(rank).store(emptiest, std::memory_order_relaxed);
  }
#endif

  int ranks_;
  int share_;
  std::unique_ptr<std::atomic<int>[]> places_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
