// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The coming events of a simulation, in order of time.

#include <shardwright/core/config.hpp>

#include <cstdint>
#include <queue>
#include <tuple>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Something that ends at a time: a transfer, or what a rank computes.
struct SimulationEvent {
  double time = 0;
  std::uint64_t order = 0; ///< Number in which it was added: of two at a time, the earlier one comes first.
  int subject = 0;         ///< Rank or transfer.
  std::uint32_t version = 0;
  bool transfer = false;
};

/// @brief Events, the earliest first; one run of a simulation is the same as any other.
class EventQueue {
public:
  void add(double time, int subject, bool transfer = false, std::uint32_t version = 0) {
    events_.push({time, count_++, subject, version, transfer});
  }
  /// @brief Takes the next event; false where there is none.
  bool take(SimulationEvent& event) {
    if (events_.empty())
      return false;
    event = events_.top();
    events_.pop();
    return true;
  }
  /// @brief Events that were added in all.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

private:
  struct Later {
    bool operator()(const SimulationEvent& left, const SimulationEvent& right) const {
      return std::tie(left.time, left.order) > std::tie(right.time, right.order);
    }
  };
  std::priority_queue<SimulationEvent, std::vector<SimulationEvent>, Later> events_;
  std::uint64_t count_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
