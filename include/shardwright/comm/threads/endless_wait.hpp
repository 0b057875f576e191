// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds waits of thread ranks that can never end, long before their deadline.

#include <shardwright/comm/threads/world.hpp>

#include <chrono>
#include <new>
#include <thread>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Whether a rank and others wait for one another in a ring. It is looked for twice, since a started call
/// that is about to begin may look like one.
[[nodiscard]] inline bool never_ends(ThreadWorld& world, int world_rank) noexcept {
  try {
    const std::vector<int> ring = world.wait_cycle(world_rank);
    if (ring.empty())
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return world.wait_cycle(world_rank) == ring;
  } catch (const std::bad_alloc&) {
    return false; // the deadline remains
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
