// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Work on a separate thread; if it fails, the error sentence is kept.

#include <shardwright/core/config.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint::detail {

/// One piece of work at a time. Its thread calls no communicator, since a transport may support one thread
/// only.
class BackgroundTask {
public:
  BackgroundTask() = default;
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;
  ~BackgroundTask() { static_cast<void>(wait()); }

  /// Starts the work, or does it right here if no thread can be created.
  void start(std::function<void()> work) {
    static_cast<void>(wait());
    sentence_.clear();
    done_.store(false, std::memory_order_relaxed);
    auto whole = [this, work = std::move(work)] {
      try {
        work();
      } catch (const std::exception& error) {
        sentence_ = error.what();
      }
      const std::lock_guard lock(
          mutex_); // held until the notification, so that the object is not destroyed before
      done_.store(true, std::memory_order_release);
      ended_.notify_all();
    };
    try {
      thread_ = std::thread(whole);
    } catch (const std::system_error&) {
      whole();
    }
  }

  [[nodiscard]] bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// Waits for the end, but no longer than the given time. @return done()
  bool wait_for(std::chrono::duration<double> longest) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, longest, [this] { return done(); });
  }
  /// Waits for the end. @return the error sentence; empty if there was no error
  const std::string& wait() {
    if (thread_.joinable())
      thread_.join();
    return sentence_;
  }

private:
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::atomic<bool> done_{true};
  std::string sentence_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint::detail
