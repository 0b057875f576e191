// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The pending events of a simulation, in time order.

#include <shardwright/core/config.hpp>

#include <compare>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Something that ends at a given time: a transfer, or a rank's computation.
struct SimulationEvent {
  double time = 0;         ///< Seconds since the step began.
  std::uint64_t order = 0; ///< Number in which it was added: of two at a time, the earlier one comes first.
  int subject = 0;         ///< Rank or transfer.
  std::uint32_t version = 0;
  bool transfer = false;

  friend auto operator<=>(const SimulationEvent&, const SimulationEvent&) = default;
};

/// @brief Events, earliest first; every run of a simulation processes them in the same order.
class EventQueue {
public:
  void add(double time, int subject, bool transfer = false, std::uint32_t version = 0) {
    events_.push({time, count_++, subject, version, transfer});
  }
  /// @brief Takes the next event; returns false if there is none.
  bool take(SimulationEvent& event) {
    if (events_.empty())
      return false;
    event = events_.top();
    events_.pop();
    return true;
  }
  /// @brief The total number of events added.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

private:
  std::priority_queue<SimulationEvent, std::vector<SimulationEvent>, std::greater<>> events_;
  std::uint64_t count_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
