// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Host waits for the device, during which the calls of all communicators of the rank progress and are
/// monitored.

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/waiting.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The transports of one rank whose calls need the host to progress or to fail. While the host waits for one
/// of them, or for a stream that one of them holds up, other ranks may need the others: every wait drives all
/// of them.
class DrivenTransports {
public:
  /// Those of the calling thread, which is a rank; created when the first one enters. Templates, like enter()
  /// and leave(), so that translation units without a device transport do not compile them.
  template <class Transports = DrivenTransports>
  [[nodiscard]] static std::shared_ptr<Transports> of_this_rank() {
    std::shared_ptr<Transports> out = known().lock();
    if (!out)
      known() = out = std::make_shared<Transports>();
    return out;
  }
  /// The same, or null if none has entered.
  [[nodiscard]] static std::shared_ptr<DrivenTransports> find() { return known().lock(); }

  template <class Transport> void enter(Transport& transport) {
    const std::lock_guard lock(mutex_);
    transports_.push_back(&transport);
  }
  template <class Transport> void leave(Transport& transport) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(transports_, static_cast<DeviceTransport*>(&transport));
  }

  /// DeviceTransport::drive of all. @return whether none has a call on a stream.
  bool drive(bool closely) {
    const std::lock_guard lock(mutex_);
    bool done = true;
    for (DeviceTransport* const each : transports_)
      done = each->drive(closely) && done;
    return done;
  }
  /// Keeps an error that could not be reported, for the next wait.
  void keep(std::exception_ptr error) noexcept { untold_ = std::move(error); }
  /// @throws what was kept.
  void tell() {
    if (untold_)
      std::rethrow_exception(std::exchange(untold_, nullptr));
  }
  /// Ends all.
  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    for (DeviceTransport* const each : transports_)
      each->abort(reason);
  }

private:
  [[nodiscard]] static std::weak_ptr<DrivenTransports>& known() {
    thread_local std::weak_ptr<DrivenTransports> of_this_thread;
    return of_this_thread;
  }

  std::mutex mutex_;
  std::vector<DeviceTransport*> transports_;
  std::exception_ptr untold_;
};

/// Waits on the host until `done()`.
/// @return whether it came true within the deadline.
/// @throws whatever `done` throws, and the error of a call of this rank that cannot complete, at that call's
/// own deadline, or one kept from an earlier release of memory.
template <class Done>
[[nodiscard]] bool await_device(Done&& done,
                                std::chrono::nanoseconds deadline = std::chrono::nanoseconds::max()) {
  const auto transports = DrivenTransports::find();
  if (transports)
    transports->tell();
  Waiting waiting(deadline);
  while (!done()) {
    if (transports)
      transports->drive(waiting.slow());
    waiting.pause();
    if (waiting.expired())
      return false;
  }
  return true;
}

/// Waits until the calls on streams are done or, if one of them cannot complete, until all have been aborted.
/// Freeing device memory waits for them too, and would otherwise never return.
inline void settle_device() noexcept {
  const auto transports = DrivenTransports::find();
  if (!transports)
    return;
  try {
    Waiting waiting(std::chrono::nanoseconds::max());
    while (!transports->drive(waiting.slow()))
      waiting.pause();
  } catch (const std::exception&) {
    transports->keep(std::current_exception());
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
