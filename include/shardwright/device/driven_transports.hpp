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

/// The objects that a rank, which is the calling thread, has registered. `Registry` derives from it; each
/// rank has one as long as it is used.
template <class Registry, class Member> class RankRegistry {
public:
  /// Created when the first user asks.
  [[nodiscard]] static std::shared_ptr<Registry> of_this_rank() {
    std::shared_ptr<Registry> out = known().lock();
    if (!out)
      known() = out = std::make_shared<Registry>();
    return out;
  }
  /// The same, or null if there is none.
  [[nodiscard]] static std::shared_ptr<Registry> find() { return known().lock(); }

  void enter(Member& member) {
    const std::lock_guard lock(mutex_);
    members_.push_back(&member);
  }
  void leave(Member& member) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(members_, &member);
  }

protected:
  std::mutex mutex_;
  std::vector<Member*> members_; ///< Under the mutex.

private:
  [[nodiscard]] static std::weak_ptr<Registry>& known() {
    thread_local std::weak_ptr<Registry> of_this_thread;
    return of_this_thread;
  }
};

/// The transports of one rank whose calls need the host to progress or to fail. While the host waits for one
/// of them, or for a stream that one of them holds up, other ranks may need the others: every wait drives all
/// of them.
class DrivenTransports : public RankRegistry<DrivenTransports, Transport> {
public:
  /// Transport::drive of all. @return whether none has a call on a stream.
  bool drive(bool closely) {
    const std::lock_guard lock(mutex_);
    bool done = true;
    for (Transport* const each : members_)
      done = each->drive(closely) && done;
    return done;
  }
  /// Saves an error that could not be reported, for the next wait.
  void tell_later(std::exception_ptr error) noexcept { untold_ = std::move(error); }
  /// @throws what was saved.
  void tell() {
    if (untold_)
      std::rethrow_exception(std::exchange(untold_, nullptr));
  }
  /// Ends all.
  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    for (Transport* const each : members_)
      each->abort(reason);
  }

private:
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
void settle_device() noexcept;

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void settle_device() noexcept {
  const auto transports = DrivenTransports::find();
  if (!transports)
    return;
  try {
    Waiting waiting(std::chrono::nanoseconds::max());
    while (!transports->drive(waiting.slow()))
      waiting.pause();
  } catch (const std::exception&) {
    transports->tell_later(std::current_exception());
  }
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
