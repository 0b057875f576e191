// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A thread that looks at something from time to time while the program is busy or inside MPI.

#include <shardwright/core/config.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Calls `look()` after every period, on its own thread, until that returns false or the watch is destroyed.
class Watch {
public:
  template <class Look>
  Watch(std::chrono::nanoseconds period, Look look)
      : thread_([this, period, look = std::move(look)]() mutable {
          std::unique_lock lock(mutex_);
          while (!wake_.wait_for(lock, period, [this] { return ended_; }) && look()) {
          }
        }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_; ///< Last: it uses the others.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
