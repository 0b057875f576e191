// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of members of a group of thread ranks, in either memory: admission of calls,
/// messages, and the errors that end the group.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/fingerprint.hpp>
#include <shardwright/comm/flight_recorder.hpp>
#include <shardwright/comm/threads/group.hpp>
#include <shardwright/comm/threads/mailbox.hpp>
#include <shardwright/comm/threads/report.hpp>
#include <shardwright/comm/threads/world.hpp>
#include <shardwright/comm/validate.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One rank of a group that belongs to a ThreadWorld.
template <class Group>
class GroupMember {
public:
  GroupMember(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
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
  [[nodiscard]] Group& group() const noexcept { return *group_; }
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
    message.ticket = recorder().begin(entry(call, message.sequence, world_rank(call.root)));
    group_->mailbox().post(message);
  }

  void finish(ThreadMessage& message, const Patience& patience) {
    auto& mailbox = group_->mailbox();
    WaitPoint& point = mailbox.point(rank_);
    const bool awake = point.wait([&] { return message.over() || group_->ended_for(message.call.root); },
                                  patience, world().deadline());
    if (!message.over() && mailbox.withdraw(message)) {
      if (!awake)
        fail(late_message(*this, message));
      recorder().end(message.ticket);
      raise(message.call, message.sequence);
    }
    // Taken by the other side, which copies without waiting for anything.
    while (!point.wait([&] { return message.over(); }, patience, world().deadline())) {
    }
    recorder().end(message.ticket);
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
    recorder().end(message.ticket);
  }

  /// What it means that nobody waits for a started call.
  [[nodiscard]] Failure dropped(const CollectiveCall& call) const {
    Failure out;
    out.kind = Failure::Kind::abandoned;
    out.rank = world_rank(rank_);
    out.sentence = "Pending: a started call must be waited for, but the handle of " + describe(call, 0) +
                   " was dropped (keep it, and call wait() once)";
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

protected:
  /// Keeps the flight recorder right however the call ends.
  class Recording {
  public:
    Recording(GroupMember& member, const CollectiveCall& call, std::uint64_t sequence, int peer)
        : recorder_(member.recorder()), ticket_(recorder_.begin(member.entry(call, sequence, peer))) {}
    ~Recording() { recorder_.end(ticket_); }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

  private:
    FlightRecorder& recorder_;
    FlightRecorder::Ticket ticket_;
  };

  [[nodiscard]] FlightRecorder& recorder() const { return world().recorder(world_rank(rank_)); }
  [[nodiscard]] FlightEntry entry(const CollectiveCall& call, std::uint64_t sequence,
                                  int peer) const noexcept {
    const GroupOfWorld* id = group_.get();
    return {call.operation, name(), id, sequence, peer, call.tag, call.where, true};
  }

  /// Throws what the end of the group means to this call.
  [[noreturn]] void raise(const CollectiveCall& call, std::uint64_t sequence) {
    const bool told = told_.exchange(true, std::memory_order_relaxed);
    const std::string operation(name_of(call.operation));
    if (world().finished())
      throw LifecycleError(
          operation +
              ": a communicator must not be used after launch() has returned (keep it inside the program)",
          context(call, sequence));
    const FailurePointer failure = first_cause(*this);
    const bool waited =
        failure->kind == Failure::Kind::deadline && !told &&
        (failure->rank == world_rank(rank_) || (sequence != 0 && failure->sequence == sequence));
    const bool absent = std::find(failure->missing.begin(), failure->missing.end(), world_rank(rank_)) !=
                        failure->missing.end();
    if (waited && !absent)
      throw DeadlineExceeded(failure->missing, operation + ": " + failure->sentence, context(call, sequence));
    if (failure->rank == world_rank(rank_))
      throw LifecycleError(used_after(call), context(call, sequence));
    throw PeerFailed(failure->rank,
                     operation + ": every rank of the group must take part, but " + cause_of(*failure) +
                         " (fix that first)",
                     context(call, sequence));
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

  /// Shows a call to the other ranks.
  void show(ThreadSlot& slot, const CollectiveCall& call, std::uint64_t sequence) const noexcept {
    slot.call = &call;
    slot.in = byte_range(call.in, in_elements(call, rank_, size()), call.element);
    slot.out = byte_range(call.out, out_elements(call, size()), call.element);
    slot.in_blocks = call.in_blocks.empty() ? nullptr : call.in_blocks.data();
    slot.out_blocks = call.out_blocks.empty() ? nullptr : call.out_blocks.data();
    if (!world().check())
      return;
    const Fingerprint own = fingerprint(call, rank_, size(), sequence);
    slot.common = own.common;
    slot.unpaired = own.sent - own.received;
    slot.dense = std::all_of(call.out_blocks.begin(), call.out_blocks.end(),
                             [](const auto& block) { return block.contiguous(); });
  }

private:
  [[nodiscard]] std::string used_after(const CollectiveCall& call) const {
    const FailurePointer failure = group_->failure();
    return std::string(name_of(call.operation)) +
           ": a communicator must not be used after it has failed (end the program, or launch a new world)" +
           (failure ? "; it failed because " + cause_of(*failure) : std::string());
  }

  std::shared_ptr<Group> group_;
  int rank_;
  std::atomic<std::uint64_t> messages_{0};
  std::atomic<bool> told_{false};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
