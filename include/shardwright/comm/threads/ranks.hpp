// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Operations that only thread ranks support, because they share memory.

#include <shardwright/comm/host_communicator.hpp>

#include <memory>
#include <span>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

class ThreadWorld;

/// Replaces the block copies of an all_to_all between ranks that can read one another's memory. Every rank of
/// the group must supply one, which moves the same data as the blocks would.
class DirectExchange {
public:
  /// Called once, on any thread, while the memory of all ranks is open; does not communicate or allocate.
  /// @param ranks the object that each rank of the group supplied
  virtual void run(std::span<DirectExchange* const> ranks) noexcept = 0;

protected:
  ~DirectExchange() = default;
};

/// The interface that only the transport of thread ranks has; code that can use it asks for it.
class ThreadRanks {
public:
  /// The interface of a group's innermost transport, below all decorators; null if its ranks are processes.
  [[nodiscard]] static ThreadRanks* of(const HostCommunicator& group) {
    return dynamic_cast<ThreadRanks*>(&group.undecorated());
  }

  /// The state that all ranks of the launch share.
  [[nodiscard]] virtual std::shared_ptr<ThreadWorld> world() const = 0;

  /// The next all_to_all that this rank issues moves its data by `exchange`, if it is issued during the
  /// lifetime of this object: while that call waits, another function may have the turn and issue others.
  class [[nodiscard]] MovedBy {
  public:
    MovedBy(ThreadRanks& ranks, DirectExchange& exchange) noexcept : ranks_(ranks) {
      ranks_.direct_ = &exchange;
    }
    ~MovedBy() { ranks_.direct_ = nullptr; }
    MovedBy(const MovedBy&) = delete;
    MovedBy& operator=(const MovedBy&) = delete;

  private:
    ThreadRanks& ranks_;
  };

protected:
  ~ThreadRanks() = default;

  [[nodiscard]] DirectExchange* take_direct_exchange() noexcept { return std::exchange(direct_, nullptr); }

private:
  DirectExchange* direct_ = nullptr;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
