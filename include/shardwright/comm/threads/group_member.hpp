// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of members of a group of thread ranks, in either memory: admission of calls,
/// messages, and the errors that end the group.

#include <shardwright/comm/notice.hpp>
#include <shardwright/comm/report.hpp>
#include <shardwright/comm/threads/shared_group.hpp>
#include <shardwright/comm/validate.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One rank of a SharedGroup.
class GroupMember {
public:
  GroupMember(std::shared_ptr<SharedGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}
  GroupMember(const GroupMember&) = delete;
  GroupMember& operator=(const GroupMember&) = delete;
  ~GroupMember() {
    auto failure = std::make_shared<Failure>();
    failure->kind = Failure::Kind::left;
    failure->rank = world_rank(rank_);
    failure->sentence = std::string("it gave up its handle of group ") + name();
    failure->unwinding = std::uncaught_exceptions() > 0;
    group_->leave(failure->rank, failure);
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return group_->size(); }
  [[nodiscard]] int world_rank(int rank) const { return group_->world_rank(rank); }
  [[nodiscard]] const char* name() const noexcept { return group_->name(); }
  [[nodiscard]] SharedGroup& group() const noexcept { return *group_; }
  [[nodiscard]] ThreadWorld& world() const noexcept { return group_->world(); }

  /// The checks before a call is issued: the communicator is alive, the arguments make sense.
  void admit(const CollectiveCall& call) {
    if (told_.load(std::memory_order_relaxed))
      throw LifecycleError(used_after(call), context(call, 0));
    if (!sends_or_receives(call.operation) && group_->ended())
      raise(call, 0);
    validate(call, *this, 0);
    if (sends_or_receives(call.operation) && group_->ended_for(call.root))
      raise(call, 0);
  }

  /// Throws what a call would throw because the group has ended, without having been told so.
  void require_alive(const CollectiveCall& call) {
    if (sends_or_receives(call.operation) ? !group_->ended_for(call.root) : !group_->ended())
      return;
    const bool told = told_.load(std::memory_order_relaxed);
    try {
      raise(call, 0);
    } catch (const Error&) {
      told_.store(told, std::memory_order_relaxed);
      throw;
    }
  }

  /// Posts a message; `finish` waits for it.
  void post(ThreadMessage& message, const CollectiveCall& call) {
    message.call = call;
    message.rank = rank_;
    message.sequence = messages_.fetch_add(1, std::memory_order_relaxed) + 1;
    message.state.store(ThreadMessage::State::posted, std::memory_order_relaxed);
    message.ticket = begin(call, message.sequence, world_rank(call.root));
    group_->mailbox().post(message);
  }

  /// Says on the standard error stream whom this rank waits for.
  void say_long_wait(const CollectiveCall& call, std::uint64_t sequence,
                     const std::vector<int>& missing) const noexcept {
    const auto doing = [this](int rank) { return world().recorder(rank).describe(); };
    LongWait{world_rank(rank_), describe(call, sequence), name(), missing, whereabouts(missing, doing),
             world().notice(),  world().deadline()}
        .say();
  }

  void finish(ThreadMessage& message, const Patience& patience) {
    ThreadMailbox& mailbox = group_->mailbox();
    WaitPoint& point = mailbox.point(rank_);
    const bool awake =
        point.wait([&] { return message.over() || group_->ended_for(message.call.root); }, patience,
                   world().deadline(), world().notice(),
                   [&] { say_long_wait(message.call, message.sequence, {world_rank(message.call.root)}); });
    if (!message.over() && mailbox.withdraw(message)) {
      if (!awake)
        fail(late(message));
      end(message.ticket);
      raise(message.call, message.sequence);
    }
    // Taken by the other side, which copies without waiting for anything.
    while (!point.wait([&] { return message.over(); }, patience, world().deadline())) {
    }
    end(message.ticket);
    if (message.state.load(std::memory_order_seq_cst) == ThreadMessage::State::done)
      return;
    disagree(message.mismatch, message.call, message.sequence);
  }

  /// Takes a message back, or lets its copy end, when nobody will wait for it.
  void discard(ThreadMessage& message, const Patience& patience) noexcept {
    WaitPoint& point = group_->mailbox().point(rank_);
    if (!message.over() && !group_->mailbox().withdraw(message))
      while (!point.wait([&] { return message.over(); }, patience, world().deadline())) {
      }
    end(message.ticket);
  }

  /// The failure of a started call whose handle was dropped.
  [[nodiscard]] Failure dropped(const CollectiveCall& call) const {
    Failure out;
    out.kind = Failure::Kind::abandoned;
    out.rank = world_rank(rank_);
    out.sentence = dropped_sentence(call, 0);
    out.unwinding = std::uncaught_exceptions() > 0;
    return out;
  }

  /// Ends the group with a failure of this rank's making.
  void fail(Failure failure) noexcept { group_->fail(std::make_shared<const Failure>(std::move(failure))); }

  void abort(const std::string& reason) {
    auto failure = std::make_shared<Failure>();
    failure->kind = Failure::Kind::aborted;
    failure->rank = world_rank(rank_);
    failure->sentence = reason;
    told_.store(true, std::memory_order_relaxed);
    world().end(failure);
  }

  [[nodiscard]] ErrorContext context(const CollectiveCall& call, std::uint64_t sequence) const {
    return {world_rank(rank_), name(), std::string(name_of(call.operation)), sequence, {}, call.where};
  }

  /// Notes in the flight recorder that a call begins; `peer` is a world rank in a message.
  [[nodiscard]] FlightRecorder::Ticket begin(const CollectiveCall& call, std::uint64_t sequence,
                                             int peer = -1) {
    const GroupOfWorld* id = group_.get();
    return recorder().begin({call.operation, name(), id, sequence, peer, call.tag, call.where, true});
  }
  void end(FlightRecorder::Ticket ticket) noexcept { recorder().end(ticket); }
  /// Keeps the flight recorder right however a collective ends.
  class Recording {
  public:
    Recording(GroupMember& member, const CollectiveCall& call, std::uint64_t sequence)
        : member_(member), ticket_(member.begin(call, sequence)) {}
    ~Recording() { member_.end(ticket_); }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

  private:
    GroupMember& member_;
    FlightRecorder::Ticket ticket_;
  };

  /// Throws what the end of the group means to this call.
  [[noreturn]] void raise(const CollectiveCall& call, std::uint64_t sequence) {
    const bool told = told_.exchange(true, std::memory_order_relaxed);
    if (world().finished())
      throw LifecycleError(used_after_launch(call.operation), context(call, sequence));
    const FailurePointer failure = first_cause(call);
    const bool waited =
        failure->kind == Failure::Kind::deadline && !told &&
        (failure->rank == world_rank(rank_) || (sequence != 0 && failure->sequence == sequence));
    const bool absent = std::find(failure->missing.begin(), failure->missing.end(), world_rank(rank_)) !=
                        failure->missing.end();
    if (waited && !absent)
      throw DeadlineExceeded(failure->missing,
                             std::string(name_of(call.operation)) + ": " + failure->sentence,
                             context(call, sequence));
    if (failure->rank == world_rank(rank_))
      throw LifecycleError(used_after(call), context(call, sequence));
    throw PeerFailed(failure->rank, ended_by(call.operation, *failure), context(call, sequence));
  }

  /// Ends the group because its ranks issued different calls, and says so.
  [[noreturn]] void disagree(const std::string& sentence, const CollectiveCall& call,
                             std::uint64_t sequence) {
    Failure failure;
    failure.kind = Failure::Kind::mismatch;
    failure.rank = world_rank(rank_);
    failure.sentence = sentence;
    fail(std::move(failure));
    told_.store(true, std::memory_order_relaxed);
    throw CollectiveMismatch(std::string(name_of(call.operation)) + ": " + sentence, context(call, sequence));
  }

  /// The failure of ranks that did not come to a collective.
  [[nodiscard]] FailurePointer late(const CollectiveCall& call, std::uint64_t sequence) const {
    Failure out = late_rank(group_->absent(sequence));
    out.sequence = sequence;
    out.sentence =
        late_collective(name(), call, sequence, world().deadline(), out.missing, found(out.missing));
    return std::make_shared<const Failure>(std::move(out));
  }

private:
  [[nodiscard]] FlightRecorder& recorder() const { return world().recorder(world_rank(rank_)); }
  [[nodiscard]] Failure late(const ThreadMessage& message) const {
    Failure out = late_rank({world_rank(message.call.root)});
    out.sentence = late_message(name(), message.call, message.sequence, world().deadline(),
                                group_->mailbox().offered(message), found(out.missing));
    return out;
  }
  [[nodiscard]] Failure late_rank(std::vector<int> missing) const {
    Failure out;
    out.kind = Failure::Kind::deadline;
    out.rank = world_rank(rank_);
    out.missing = std::move(missing);
    return out;
  }
  /// Reports of the missing ranks, and whether their waits lead back to this one.
  [[nodiscard]] std::string found(const std::vector<int>& missing) const {
    const auto doing = [this](int rank) { return world().recorder(rank).describe(); };
    return whereabouts(missing, doing) + cycle_text(world().wait_cycle(world_rank(rank_)), doing);
  }

  /// The failure that ends a call. One that was found while an exception was on its way gives that exception
  /// a moment to arrive at launch(), since it is the first cause. The rank that throws does not wait for
  /// itself.
  [[nodiscard]] FailurePointer first_cause(const CollectiveCall& call) const {
    FailurePointer failure =
        sends_or_receives(call.operation) ? group_->failure_for(call.root) : group_->failure();
    if (!failure->unwinding || failure->rank == world_rank(rank_))
      return failure;
    constexpr int looks = 200;
    for (int look = 0; look < looks; ++look) {
      if (const FailurePointer cause = world().failure())
        return cause;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return failure;
  }

  [[nodiscard]] std::string used_after(const CollectiveCall& call) const {
    const FailurePointer failure = group_->failure();
    return used_after_failure(call.operation, failure ? cause_of(*failure) : std::string());
  }

  std::shared_ptr<SharedGroup> group_;
  int rank_;
  std::atomic<std::uint64_t> messages_{0};
  std::atomic<bool> told_{false};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
