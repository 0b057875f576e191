// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief How calls of several thread ranks that share the device are timed.

#include "device.hpp"

#include <shardwright/comm/host_communicator.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace gpu {

/// @brief The sizes of a table: each four times the one before.
[[nodiscard]] inline std::vector<std::size_t> sizes_between(std::size_t least, std::size_t most) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = least; bytes <= most; bytes *= 4)
    sizes.push_back(bytes);
  return sizes;
}

/// @brief Calls of one measurement: the same on all ranks, so that only the sizes say.
[[nodiscard]] inline std::size_t calls_of(std::size_t copied_bytes) {
  return std::clamp<std::size_t>((std::size_t{16} << 30) / std::max<std::size_t>(copied_bytes, 1), 4, 100);
}

/// @brief Times calls that every rank puts on its stream, from the first start to the end of the last stream.
class GroupTimer {
public:
  explicit GroupTimer(int ranks) : spans_(static_cast<std::size_t>(ranks)) {}

  /// @brief Collective: seconds of one of `count` calls in a row; the same on every rank.
  template <class Work>
  [[nodiscard]] double seconds(sw::HostCommunicator& world, const Execution& execution, std::size_t count,
                               const Work& work) {
    auto& [begin, end] = spans_[static_cast<std::size_t>(world.rank())];
    execution.fence();
    world.barrier();
    begin = Clock::now();
    for (std::size_t i = 0; i < count; ++i)
      work();
    execution.fence();
    end = Clock::now();
    world.barrier();
    Clock::time_point first = spans_[0].first, last = spans_[0].second;
    for (const auto& [start, stop] : spans_) {
      first = std::min(first, start);
      last = std::max(last, stop);
    }
    world.barrier();
    return std::chrono::duration<double>(last - first).count() / static_cast<double>(count);
  }

private:
  std::vector<std::pair<Clock::time_point, Clock::time_point>> spans_;
};

} // namespace gpu
