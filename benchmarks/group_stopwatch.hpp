// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The timing of a call that all thread ranks make together.

#include "timing.hpp"

#include <shardwright/comm/host_communicator.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace benchmark {

/// @brief Times a call from the first rank's start to the last one's end. The ranks share one object.
class GroupStopwatch {
public:
  explicit GroupStopwatch(int ranks) : spans_(static_cast<std::size_t>(ranks)) {}

  /// @brief Collective: seconds of `work`, the same on every rank.
  template <class Work> [[nodiscard]] double seconds(shardwright::HostCommunicator& world, const Work& work) {
    Span& own = spans_[static_cast<std::size_t>(world.rank())];
    world.barrier();
    own.start = Clock::now();
    work();
    own.end = Clock::now();
    world.barrier();
    Span whole = spans_[0];
    for (const Span& span : spans_) {
      whole.start = std::min(whole.start, span.start);
      whole.end = std::max(whole.end, span.end);
    }
    world.barrier(); // all have read before the next call writes
    return std::chrono::duration<double>(whole.end - whole.start).count();
  }

private:
  struct alignas(128) Span {
    Clock::time_point start{}, end{};
  };
  std::vector<Span> spans_;
};

} // namespace benchmark
