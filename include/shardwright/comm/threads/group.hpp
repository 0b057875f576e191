// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The shared side of a group of thread ranks: the calls that the ranks publish, and where they meet.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/fingerprint.hpp>
#include <shardwright/comm/threads/mailbox.hpp>
#include <shardwright/comm/threads/world.hpp>
#include <shardwright/comm/validate.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// What a split asks for on one rank.
struct SplitRequest {
  int colour = 0;
  int key = 0;
  const std::string* name = nullptr;
};

/// What one rank shows to the others during a collective: written before its arrival, read after everyone's.
///
/// The first line holds the arrival itself and what most exchanges need, so that one transfer between cores
/// brings both.
struct alignas(128) ThreadSlot {
  std::atomic<std::uint64_t> arrived{0}; ///< Number of the collective that the rank has entered.
  std::uint64_t common = 0;              ///< Of the fingerprint.
  std::uint64_t unpaired = 0;            ///< What the fingerprint sends less what it receives.
  const CollectiveCall* call = nullptr;
  ByteRange in{};
  ByteRange out{};
  const StridedBlock* in_blocks = nullptr;  ///< Null for even ones.
  const StridedBlock* out_blocks = nullptr; ///< Null for even ones.
  const SplitRequest* request = nullptr;
  bool dense = true; ///< The output is one run, so that its range is exact.
};

/// A group of thread ranks. Ranks meet by raising a flag each and looking at everyone's.
///
/// Two meetings bracket the exchange of data: after the first every rank may touch every other rank's
/// buffers, after the second none does. The first can fail, by a deadline or a peer's end. Either all ranks
/// pass it or none: whoever closes the group raises a mark first and then reads the flags; a rank that has
/// raised its own flag and seen all of them looks for the mark; all of this is sequentially consistent, so a
/// rank that misses the mark has flags that the closer sees, and a rank that finds it goes by what the closer
/// saw. The second meeting cannot fail, because nothing between the two waits for another rank.
class ThreadGroup final : public GroupOfWorld {
public:
  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members, const std::string& name)
      : world_(std::move(world)), members_(std::move(members)), name_(world_->intern(name)),
        slots_(2 * members_.size()), flags_(members_.size()), parts_(members_.size()),
        mailbox_(static_cast<int>(members_.size())) {
    world_->enter(this);
  }
  ~ThreadGroup() override { world_->leave(this); }
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  [[nodiscard]] ThreadWorld& world() const noexcept { return *world_; }
  [[nodiscard]] const std::shared_ptr<ThreadWorld>& shared_world() const noexcept { return world_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] int world_rank(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] ThreadMailbox& mailbox() noexcept { return mailbox_; }

  /// Slots of a collective; two sets alternate, so that a rank may publish its next call while others still
  /// read.
  [[nodiscard]] ThreadSlot* slots(std::uint64_t sequence) noexcept {
    return slots_.data() + (sequence % 2) * members_.size();
  }
  /// Groups that a split forms, by the rank that creates each.
  [[nodiscard]] std::shared_ptr<ThreadGroup>& part(int rank) noexcept {
    return parts_[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] std::vector<int> absent(std::uint64_t sequence) const override {
    std::vector<int> out;
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
      if (entered(rank) < sequence)
        out.push_back(members_[rank]);
    return out;
  }

  enum class Meeting : std::uint8_t { complete, ended, late };

  /// Enters a collective, whose slot is filled, and waits for all others. `ended` means that no rank passes.
  [[nodiscard]] Meeting meet(int rank, std::uint64_t sequence, const Patience& patience) {
    const ThreadSlot* const all = slots(sequence);
    slots(sequence)[rank].arrived.store(sequence, std::memory_order_seq_cst);
    std::size_t seen = 0;
    const auto complete = [this, all, sequence, &seen] {
      while (seen < members_.size() && all[seen].arrived.load(std::memory_order_seq_cst) >= sequence)
        ++seen;
      return seen == members_.size();
    };
    const auto closed = [this] { return closed_.load(std::memory_order_seq_cst); };
    // Of the ranks that see all flags at once, one came last: it wakes those that sleep.
    if (complete())
      point_.notify();
    else if (!point_.wait([&] { return complete() || closed(); }, patience, world_->deadline()))
      return Meeting::late;
    return !closed() || passed(sequence) ? Meeting::complete : Meeting::ended;
  }

  /// Takes a rank's part in the exchange of a complete collective; true for only one caller.
  [[nodiscard]] bool claim(int rank, std::uint64_t sequence) noexcept {
    std::atomic<std::uint64_t>& claimed = flags_[static_cast<std::size_t>(rank)].claimed;
    std::uint64_t last = claimed.load(std::memory_order_seq_cst);
    return last < sequence && claimed.compare_exchange_strong(last, sequence, std::memory_order_seq_cst);
  }

  /// Shows that a rank's part is done and nobody touches buffers for it any more; `count` is one more each
  /// time.
  void let_go(int rank, std::uint64_t count) noexcept {
    flags_[static_cast<std::size_t>(rank)].released.store(count, std::memory_order_seq_cst);
  }
  /// Waits until all ranks have let go; false if that takes longer than the limit.
  [[nodiscard]] bool await_release(std::uint64_t count, const Patience& patience,
                                   std::chrono::nanoseconds limit) {
    std::size_t seen = 0;
    const auto complete = [this, count, &seen] {
      while (seen < members_.size() && flags_[seen].released.load(std::memory_order_seq_cst) >= count)
        ++seen;
      return seen == members_.size();
    };
    if (!complete())
      return point_.wait(complete, patience, limit);
    point_.notify();
    return true;
  }

  /// Ends the group; its waiters wake. The first failure counts, save that a rank's mere leaving gives way to
  /// others.
  void fail(const FailurePointer& failure) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      close(failure);
      if (failure_->kind == Failure::Kind::left)
        failure_ = failure;
      messages_over_.store(true, std::memory_order_seq_cst);
    }
    wake();
  }
  void leave(int world_rank, const FailurePointer& failure) noexcept override {
    const auto member = std::find(members_.begin(), members_.end(), world_rank);
    if (member == members_.end())
      return;
    {
      const std::lock_guard lock(mutex_);
      close(failure);
      flags_[static_cast<std::size_t>(member - members_.begin())].left.store(true, std::memory_order_seq_cst);
    }
    wake();
  }
  /// Ends the group unless everyone has entered the collective in the meantime; true if it is incomplete for
  /// ever.
  [[nodiscard]] bool give_up(std::uint64_t sequence, const FailurePointer& failure) noexcept {
    {
      const std::lock_guard lock(mutex_);
      close(failure);
      if (frozen_ >= sequence)
        return false;
      messages_over_.store(true, std::memory_order_seq_cst);
    }
    wake();
    return true;
  }
  [[nodiscard]] bool ended() const noexcept { return closed_.load(std::memory_order_seq_cst); }
  /// Whether a message to or from a rank has no future.
  [[nodiscard]] bool ended_for(int peer) const noexcept {
    return messages_over_.load(std::memory_order_seq_cst) ||
           flags_[static_cast<std::size_t>(peer)].left.load(std::memory_order_seq_cst);
  }
  /// Null while the group is well.
  [[nodiscard]] FailurePointer failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

private:
  /// The last collective that a rank has entered.
  [[nodiscard]] std::uint64_t entered(std::size_t rank) const noexcept {
    return std::max(slots_[rank].arrived.load(std::memory_order_seq_cst),
                    slots_[members_.size() + rank].arrived.load(std::memory_order_seq_cst));
  }
  /// Under the mutex: no collective becomes complete from now on.
  void close(const FailurePointer& failure) noexcept {
    if (failure_)
      return;
    failure_ = failure;
    closed_.store(true, std::memory_order_seq_cst);
    frozen_ = entered(0);
    for (std::size_t rank = 1; rank < members_.size(); ++rank)
      frozen_ = std::min(frozen_, entered(rank));
  }
  /// Whether a collective was complete when the group was closed.
  [[nodiscard]] bool passed(std::uint64_t sequence) const {
    const std::lock_guard lock(mutex_);
    return frozen_ >= sequence;
  }
  void wake() noexcept {
    point_.notify();
    mailbox_.wake();
  }

  struct alignas(128) Flags {
    std::atomic<std::uint64_t> released{0};
    std::atomic<std::uint64_t> claimed{0}; ///< The last collective in which somebody took the rank's part.
    std::atomic<bool> left{false};
  };

  std::shared_ptr<ThreadWorld> world_;
  std::vector<int> members_;
  const char* name_;
  std::vector<ThreadSlot> slots_;
  std::vector<Flags> flags_;
  std::vector<std::shared_ptr<ThreadGroup>> parts_;
  ThreadMailbox mailbox_;
  alignas(128) WaitPoint point_;
  alignas(128) std::atomic<bool> closed_{false};
  std::atomic<bool> messages_over_{false};
  std::uint64_t frozen_ = 0; ///< Last complete collective, once closed; under the mutex.
  mutable std::mutex mutex_;
  FailurePointer failure_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
