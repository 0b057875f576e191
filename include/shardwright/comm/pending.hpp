// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The handle of a started communication, which must be waited for exactly once.

#include <shardwright/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The record that a communicator keeps of one started call, implemented by each transport.
class PendingOperation {
public:
  virtual ~PendingOperation() = default;
  /// @brief Returns whether the call is done or has failed, without waiting.
  [[nodiscard]] virtual bool ready() = 0;
  /// @brief Called while it is not ready, with the time for which the program has polled: at its deadline the
  /// call fails as a wait would. @return whether it has.
  [[nodiscard]] virtual bool expire(std::chrono::nanoseconds /*polled*/) { return false; }
  /// @brief Waits until the call is done. @throws the call's typed error, at the latest at its deadline.
  virtual void wait() = 0;
  /// @brief Called when the handle is dropped without a wait: makes the communicator fail rather than hang.
  virtual void abandon() noexcept = 0;
};

/// @brief A started communication: move-only, waited for exactly once, its buffers untouched until then.
#if defined(__CUDACC__) // nvcc applies the attribute to references too, and would warn of every assignment
class Pending {
#else
class [[nodiscard]] Pending {
#endif
public:
  Pending() = default;
  explicit Pending(std::shared_ptr<PendingOperation> operation) : operation_(std::move(operation)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept {
    if (this != &other) {
      drop();
      operation_ = std::move(other.operation_);
      last_poll_ = other.last_poll_;
      polled_ = other.polled_;
    }
    return *this;
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() { drop(); }

  /// @brief Returns whether a wait would return or throw immediately. A poll waits too: at the deadline the
  /// call fails, and this is true.
  ///
  /// The time between two polls counts as a second at most, since the program may be doing other work.
  [[nodiscard]] bool ready() const {
    if (done())
      return true;
    constexpr std::chrono::nanoseconds most = std::chrono::seconds(1);
    const auto now = std::chrono::steady_clock::now();
    if (last_poll_ != std::chrono::steady_clock::time_point())
      polled_ += std::min<std::chrono::nanoseconds>(now - last_poll_, most);
    last_poll_ = now;
    return operation_->expire(polled_);
  }

  /// @brief Returns whether the call is done or has failed; does not count as a wait.
  [[nodiscard]] bool done() const { return !operation_ || operation_->ready(); }

  /// @brief Waits for the end. @throws LifecycleError on a second wait, else the call's own error.
  void wait() {
    if (!operation_)
      throw LifecycleError(
          "Pending: wait() was called twice or on an empty handle (wait once for each call)");
    const std::shared_ptr<PendingOperation> operation = std::move(operation_);
    operation_.reset();
    operation->wait();
  }

private:
  void drop() noexcept {
    if (operation_)
      operation_->abandon();
    operation_.reset();
  }

  std::shared_ptr<PendingOperation> operation_;
  mutable std::chrono::steady_clock::time_point last_poll_{};
  mutable std::chrono::nanoseconds polled_{0};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
