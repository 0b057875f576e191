// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of groups of thread ranks, for host and device memory: the members, their messages,
/// and the end of the group.

#include <shardwright/comm/threads/mailbox.hpp>
#include <shardwright/comm/threads/world.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The members of a group and how it ends.
///
/// A group ends once, by its first failure: no collective becomes complete from then on, and every waiting
/// rank wakes.
///
/// Collectives that were complete by then pass. If a rank has merely left, messages between the others
/// continue; any other failure ends them too. A derived class calls `world().enter(this)` last in its
/// constructor and `world().leave(this)` first in its destructor.
class SharedGroup : public GroupOfWorld {
public:
  SharedGroup(const SharedGroup&) = delete;
  SharedGroup& operator=(const SharedGroup&) = delete;

  [[nodiscard]] ThreadWorld& world() const noexcept { return *world_; }
  [[nodiscard]] const std::shared_ptr<ThreadWorld>& shared_world() const noexcept { return world_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] int world_rank(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] ThreadMailbox& mailbox() noexcept { return mailbox_; }

  /// World ranks that have not entered the collective of this number, in ascending order.
  [[nodiscard]] std::vector<int> absent(std::uint64_t sequence) const {
    return members_before(sequence, [this](std::size_t rank) { return entered(rank); });
  }
  [[nodiscard]] std::vector<int> awaited(int world_rank, const FlightEntry& entry) override {
    if (entry.peer < 0)
      return entered(place_of(world_rank)) < entry.sequence
                 ? std::vector<int>()
                 : members_before(entry.sequence, [this](std::size_t rank) { return begun(rank); });
    const auto rank = static_cast<int>(place_of(world_rank)), peer = static_cast<int>(place_of(entry.peer));
    return mailbox_.holds(rank, entry.operation, peer, entry.sequence) ? std::vector<int>{entry.peer}
                                                                       : std::vector<int>();
  }

  [[nodiscard]] FlightGroup flight_group() const override { return {0, name_, members_}; }

  /// Ends the group. The first failure applies, except that other failures replace a rank's mere leaving.
  void fail(const FailurePointer& failure) noexcept override {
    world_->write_flights(*failure);
    {
      const std::lock_guard lock(mutex_);
      end(failure);
      if (failure_->kind == Failure::Kind::left)
        failure_ = failure;
    }
    wake();
  }
  void leave(int world_rank, const FailurePointer& failure) noexcept override {
    const std::size_t rank = place_of(world_rank);
    if (rank == members_.size())
      return;
    {
      const std::lock_guard lock(mutex_);
      close(failure);
      if (!leavings_[rank])
        leavings_[rank] = failure;
      left_[rank].store(true, std::memory_order_seq_cst);
    }
    wake();
  }
  /// Ends the group unless everyone has entered the collective meanwhile; true if it will never be complete.
  [[nodiscard]] bool give_up(std::uint64_t sequence, const FailurePointer& failure) noexcept {
    bool complete = true;
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
      complete = complete && entered(rank) >= sequence;
    if (!complete) // before those that wait learn of it
      world_->write_flights(*failure);
    {
      const std::lock_guard lock(mutex_);
      close(failure);
      if (complete_ >= sequence)
        return false;
      messages_over_.store(true, std::memory_order_seq_cst);
    }
    wake();
    return true;
  }

  [[nodiscard]] bool ended() const noexcept { return closed_.load(std::memory_order_seq_cst); }
  /// Whether a message to or from a rank can no longer complete.
  [[nodiscard]] bool ended_for(int peer) const noexcept {
    return messages_over_.load(std::memory_order_seq_cst) ||
           left_[static_cast<std::size_t>(peer)].load(std::memory_order_seq_cst);
  }
  /// Null while the group has not failed.
  [[nodiscard]] FailurePointer failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  /// Why a message to or from a rank can no longer complete: others may have left earlier, legitimately, and
  /// are not the cause.
  [[nodiscard]] FailurePointer failure_for(int peer) const {
    const std::lock_guard lock(mutex_);
    const FailurePointer& leaving = leavings_[static_cast<std::size_t>(peer)];
    return leaving && failure_->kind == Failure::Kind::left ? leaving : failure_;
  }

protected:
  /// `carry` moves the data of a message.
  SharedGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members, const std::string& name,
              ThreadMailbox::Carry carry)
      : world_(std::move(world)), members_(std::move(members)), name_(world_->intern(name)),
        leavings_(members_.size()), left_(members_.size()), mailbox_(size(), std::move(carry)) {}
  ~SharedGroup() override = default;

  /// The last collective that a rank has entered.
  [[nodiscard]] virtual std::uint64_t entered(std::size_t rank) const noexcept = 0;
  /// The same, or the last one that it has started, which it will enter whatever its program waits for.
  [[nodiscard]] virtual std::uint64_t begun(std::size_t rank) const noexcept { return entered(rank); }

  /// Under the mutex: no collective becomes complete from now on.
  void close(const FailurePointer& failure) noexcept {
    if (failure_)
      return;
    failure_ = failure;
    closed_.store(true, std::memory_order_seq_cst);
    complete_ = entered(0);
    for (std::size_t rank = 1; rank < members_.size(); ++rank)
      complete_ = std::min(complete_, entered(rank));
  }
  /// Under the mutex: nor is any message carried.
  void end(const FailurePointer& failure) noexcept {
    close(failure);
    messages_over_.store(true, std::memory_order_seq_cst);
  }
  /// Whether a collective was complete when the group was closed.
  [[nodiscard]] bool passed(std::uint64_t sequence) const {
    const std::lock_guard lock(mutex_);
    return complete_ >= sequence;
  }
  void wake() noexcept {
    meeting_.notify();
    mailbox_.wake();
  }

  alignas(128) WaitPoint meeting_; ///< Where ranks wait for one another in a collective.
  mutable std::mutex mutex_; ///< Guards the failure, and the state that must not change once there is one.
  FailurePointer failure_;   ///< Under the mutex.

private:
  /// World ranks, ascending, whose last collective, as returned by `last(rank)`, is before this number.
  template <class Last>
  [[nodiscard]] std::vector<int> members_before(std::uint64_t sequence, Last last) const {
    std::vector<int> out;
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
      if (last(rank) < sequence)
        out.push_back(members_[rank]);
    std::sort(out.begin(), out.end());
    return out;
  }
  /// The rank in the group of a world rank; the group's size if it has none.
  [[nodiscard]] std::size_t place_of(int world_rank) const noexcept {
    return static_cast<std::size_t>(std::find(members_.begin(), members_.end(), world_rank) -
                                    members_.begin());
  }

  std::shared_ptr<ThreadWorld> world_;
  std::vector<int> members_;
  const char* name_;
  std::vector<FailurePointer> leavings_; ///< Of the ranks that have left; under the mutex.
  std::vector<std::atomic<bool>> left_;
  ThreadMailbox mailbox_;
  std::uint64_t complete_ = 0; ///< Last complete collective, once closed; under the mutex.
  alignas(128) std::atomic<bool> closed_{false};
  std::atomic<bool> messages_over_{false};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
