// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The timing of calls of several thread ranks that share the device.

#include "device.hpp"
#include "group_stopwatch.hpp"

#include <shardwright/comm/host_communicator.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace gpu {

/// @brief The sizes of a table, each four times the previous one.
[[nodiscard]] inline std::vector<std::size_t> sizes_between(std::size_t least, std::size_t most) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = least; bytes <= most; bytes *= 4)
    sizes.push_back(bytes);
  return sizes;
}

/// @brief Number of calls in one measurement; depends only on the size, so that it is the same on all ranks.
[[nodiscard]] inline std::size_t calls_of(std::size_t copied_bytes) {
  return std::clamp<std::size_t>((std::size_t{16} << 30) / std::max<std::size_t>(copied_bytes, 1), 4, 100);
}

/// @brief Times calls that every rank enqueues on its stream, from the first start to the end of the last
/// stream.
class GroupTimer {
public:
  explicit GroupTimer(int ranks) : stopwatch_(ranks) {}

  /// @brief Collective: seconds per call of `count` calls in a row; the same on every rank.
  template <class Work>
  [[nodiscard]] double seconds(sw::HostCommunicator& world, const Execution& execution, std::size_t count,
                               const Work& work) {
    execution.fence();
    const double all = stopwatch_.seconds(world, [&] {
      for (std::size_t i = 0; i < count; ++i)
        work();
      execution.fence();
    });
    return all / static_cast<double>(count);
  }

private:
  benchmark::GroupStopwatch stopwatch_;
};

} // namespace gpu
