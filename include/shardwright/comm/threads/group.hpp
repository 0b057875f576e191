// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The shared side of a group of thread ranks: the calls that the ranks publish, and where they meet.

#include <shardwright/comm/threads/shared_group.hpp>
#include <shardwright/comm/threads/slot.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A group of thread ranks. Ranks meet by each raising a flag and checking everyone's.
///
/// Two meetings bracket the exchange of data: after the first every rank may touch every other rank's
/// buffers, after the second none does. The first can fail, by a deadline or a peer's end. Either all ranks
/// pass it or none: the thread that closes the group sets a mark first and then reads the flags; a rank that
/// has raised its own flag and seen all of them checks the mark. All of this is sequentially consistent, so
/// if a rank misses the mark, the closer sees all flags, and a rank that finds the mark follows the closer's
/// decision. The second meeting cannot fail, because nothing between the two waits for another rank.
class ThreadGroup final : public SharedGroup {
public:
  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members, const std::string& name)
      : SharedGroup(std::move(world), std::move(members), name, copy_message), slots_(2 * ranks()),
        flags_(ranks()), subgroups_(ranks()) {
    this->world().enter(this);
  }
  ~ThreadGroup() override { world().leave(this); }

  /// Slots of a collective; two sets alternate, so that a rank may publish its next call while others still
  /// read.
  [[nodiscard]] ThreadSlot* slots(std::uint64_t sequence) noexcept {
    return slots_.data() + (sequence % 2) * ranks();
  }
  /// Groups that a split forms, by the rank that creates each.
  [[nodiscard]] std::shared_ptr<ThreadGroup>& subgroup(int rank) noexcept {
    return subgroups_[static_cast<std::size_t>(rank)];
  }

  enum class Meeting : std::uint8_t { complete, ended, late };

  /// Enters a collective, whose slot is filled, and waits for all others. `ended` means that no rank passes.
  /// A rank that waits for long calls `notify(first)`, where one of them is the first.
  template <class Notice>
  [[nodiscard]] Meeting meet(int rank, std::uint64_t sequence, const Patience& patience, Notice notify) {
    const ThreadSlot* const all = slots(sequence);
    slots(sequence)[rank].arrived.store(sequence, std::memory_order_seq_cst);
    std::size_t seen = 0;
    const auto complete = [this, all, sequence, &seen] {
      while (seen < ranks() && all[seen].arrived.load(std::memory_order_seq_cst) >= sequence)
        ++seen;
      return seen == ranks();
    };
    // Of the ranks that see all flags immediately, one came last: it wakes those that sleep.
    if (complete())
      meeting_.notify();
    else if (!meeting_.wait([&] { return complete() || ended(); }, patience, world().deadline(),
                            [&] { return needs_this_core(rank, seen); }, world().notice(),
                            [&] { notify(first_to_notice(sequence)); }))
      return Meeting::late;
    return !ended() || passed(sequence) ? Meeting::complete : Meeting::ended;
  }

  /// Takes a rank's part in the exchange of a complete collective; true for one caller only.
  [[nodiscard]] bool claim(int rank, std::uint64_t sequence) noexcept {
    std::atomic<std::uint64_t>& claimed = flags_[static_cast<std::size_t>(rank)].claimed;
    std::uint64_t last = claimed.load(std::memory_order_seq_cst);
    return last < sequence && claimed.compare_exchange_strong(last, sequence, std::memory_order_seq_cst);
  }

  /// Records that a rank has started a collective, which its worker enters later.
  void note_started(int rank, std::uint64_t sequence) noexcept {
    flags_[static_cast<std::size_t>(rank)].started.store(sequence, std::memory_order_seq_cst);
  }

  /// Publishes that a rank's part is done and buffers are no longer accessed for it; `count` grows by one
  /// each time.
  void release(int rank, std::uint64_t count) noexcept {
    flags_[static_cast<std::size_t>(rank)].released.store(count, std::memory_order_seq_cst);
  }
  [[nodiscard]] bool has_released(int rank, std::uint64_t count) const noexcept {
    return flags_[static_cast<std::size_t>(rank)].released.load(std::memory_order_seq_cst) >= count;
  }
  /// Waits until all ranks' parts are done; false if that takes longer than the limit.
  [[nodiscard]] bool await_release(int rank, std::uint64_t count, const Patience& patience,
                                   std::chrono::nanoseconds limit) {
    std::size_t seen = 0;
    const auto complete = [this, count, &seen] {
      while (seen < ranks() && flags_[seen].released.load(std::memory_order_seq_cst) >= count)
        ++seen;
      return seen == ranks();
    };
    if (!complete())
      return meeting_.wait(complete, patience, limit, [&] { return needs_this_core(rank, seen); });
    meeting_.notify();
    return true;
  }

private:
  struct alignas(128) Flags {
    std::atomic<std::uint64_t> released{0};
    std::atomic<std::uint64_t> claimed{0}; ///< The last collective in which a thread took the rank's part.
    std::atomic<std::uint64_t> started{0};
  };

  static void copy_message(ThreadMessage& send, ThreadMessage& receive) noexcept {
    for (CallTimes* times : {send.call.times, receive.call.times})
      if (times != nullptr)
        times->begin();
    if (send.call.count > 0)
      std::memcpy(receive.call.out, send.call.in, send.call.count * size_of(send.call.element));
    for (CallTimes* times : {send.call.times, receive.call.times})
      if (times != nullptr)
        times->end();
  }

  /// Whether one of the ranks from `seen` on, for which `rank` waits, has to run on the core of `rank`.
  [[nodiscard]] bool needs_this_core(int rank, std::size_t seen) const noexcept {
    for (int other = static_cast<int>(seen); other < size(); ++other)
      if (other != rank && world().is_on_this_core(world_rank(other)))
        return true;
    return false;
  }
  [[nodiscard]] bool first_to_notice(std::uint64_t sequence) noexcept {
    return noticed_.exchange(sequence, std::memory_order_relaxed) != sequence;
  }
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }
  [[nodiscard]] std::uint64_t entered(std::size_t rank) const noexcept override {
    return std::max(slots_[rank].arrived.load(std::memory_order_seq_cst),
                    slots_[ranks() + rank].arrived.load(std::memory_order_seq_cst));
  }
  [[nodiscard]] std::uint64_t begun(std::size_t rank) const noexcept override {
    return std::max(entered(rank), flags_[rank].started.load(std::memory_order_seq_cst));
  }

  std::vector<ThreadSlot> slots_;
  std::vector<Flags> flags_;
  std::vector<std::shared_ptr<ThreadGroup>> subgroups_;
  std::atomic<std::uint64_t> noticed_{0}; ///< Last collective for which a rank printed a notice.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
