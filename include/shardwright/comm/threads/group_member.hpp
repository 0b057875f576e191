// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of members of a group of thread ranks, for host and device memory: admission of
/// calls, messages, and the errors that end the group.

#include <shardwright/comm/long_wait.hpp>
#include <shardwright/comm/report.hpp>
#include <shardwright/comm/threads/shared_group.hpp>
#include <shardwright/comm/validate.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One rank of a SharedGroup.
class GroupMember {
public:
  GroupMember(std::shared_ptr<SharedGroup> group, int rank)
      : group_(std::move(group)), rank_(rank), leaving_(std::make_shared<Failure>()) {
    leaving_->kind = Failure::Kind::left;
    leaving_->rank = world_rank(rank_);
    leaving_->sentence = std::string("it dropped its handle to group ") + name();
  }
  GroupMember(const GroupMember&) = delete;
  GroupMember& operator=(const GroupMember&) = delete;
  ~GroupMember() {
    leaving_->unwinding = std::uncaught_exceptions() > 0;
    group_->leave(leaving_->rank, leaving_);
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return group_->size(); }
  [[nodiscard]] int world_rank(int rank) const { return group_->world_rank(rank); }
  [[nodiscard]] const char* name() const noexcept { return group_->name(); }
  [[nodiscard]] SharedGroup& group() const noexcept { return *group_; }
  [[nodiscard]] ThreadWorld& world() const noexcept { return group_->world(); }

  /// The checks before a call is issued: the communicator is alive, the arguments are valid.
  void admit(const CollectiveCall& call) {
    if (told_.load(std::memory_order_relaxed))
      throw LifecycleError(used_after(call), context(call, 0));
    if (!sends_or_receives(call.operation) && group_->ended())
      raise(call, 0);
    validate(call, *this, 0);
    if (sends_or_receives(call.operation) && group_->ended_for(call.root))
      raise(call, 0);
  }

  /// Throws the error that a call would throw because the group has ended, without marking it as reported.
  void require_alive(const CollectiveCall& call) {
    if (sends_or_receives(call.operation) ? !group_->ended_for(call.root) : !group_->ended())
      return;
    raise(call, 0, false);
  }

  /// Posts a message; `finish` waits for it, now or, if it was started, later.
  void post(ThreadMessage& message, const CollectiveCall& call, bool started) {
    message.call = call;
    message.rank = rank_;
    message.sequence = messages_.fetch_add(1, std::memory_order_relaxed) + 1;
    message.state.store(ThreadMessage::State::posted, std::memory_order_relaxed);
    message.ticket = begin(call, message.sequence, started, world_rank(call.root));
    group_->mailbox().post(message);
  }

  /// Prints to stderr the ranks for which this one waits, `missing()`; nothing if all have arrived meanwhile,
  /// or if there is no memory for the message.
  template <class Missing>
  void print_long_wait(const CollectiveCall& call, std::uint64_t sequence, Missing&& missing) const noexcept {
    try {
      const std::vector<int> ranks = missing();
      if (ranks.empty())
        return;
      LongWait{world_rank(rank_), describe(call, sequence), name(), ranks, whereabouts_of(ranks),
               world().notice(),  world().deadline()}
          .print();
    } catch (const std::bad_alloc&) { // NOLINT(bugprone-empty-catch): the wait continues
    }
  }

  void finish(ThreadMessage& message, const Patience& patience) {
    ThreadMailbox& mailbox = group_->mailbox();
    WaitPoint& point = mailbox.point(rank_);
    const bool awake = point.wait(
        [&] { return message.over() || group_->ended_for(message.call.root); }, patience, world().deadline(),
        [&] { return message.call.root != rank_ && world().is_on_this_core(world_rank(message.call.root)); },
        world().notice(),
        [&] {
          if (never_ends())
            fail([&] { return late(message, true); });
          else
            print_long_wait(message.call, message.sequence,
                            [&] { return std::vector<int>{world_rank(message.call.root)}; });
        });
    // Before it is withdrawn: of ranks that give up at the same time, the first sees that all others wait.
    if (!awake && message.state.load(std::memory_order_seq_cst) == ThreadMessage::State::posted)
      fail([&] { return late(message); });
    if (!message.over())
      note_given_up(message.call); // before its wait is over for others
    if (!message.over() && mailbox.withdraw(message)) {
      end(message.ticket);
      raise(message.call, message.sequence);
    }
    // Matched by the other side, which copies without waiting for anything.
    while (!point.wait([&] { return message.over(); }, patience, world().deadline())) {
    }
    end(message.ticket);
    if (message.state.load(std::memory_order_seq_cst) == ThreadMessage::State::done)
      return;
    disagree(mismatch_of(message), message.call, message.sequence);
  }

  /// Ends the group if a message has been polled for longer than the deadline. @return whether it has.
  [[nodiscard]] bool expire(ThreadMessage& message, std::chrono::nanoseconds polled) noexcept {
    if (polled <= world().deadline())
      return false;
    if (message.state.load(std::memory_order_seq_cst) == ThreadMessage::State::posted)
      fail([&] { return late(message); });
    return true;
  }

  /// finish() for a message that was started: the rank waits for it from now on.
  void wait_for(ThreadMessage& message, const Patience& patience) {
    if (!message.over())
      wait(message.ticket);
    finish(message, patience);
  }

  /// Withdraws a message, or lets its copy finish, when nothing will wait for it.
  void discard(ThreadMessage& message, const Patience& patience) noexcept {
    WaitPoint& point = group_->mailbox().point(rank_);
    if (!message.over() && !group_->mailbox().withdraw(message))
      while (!point.wait([&] { return message.over(); }, patience, world().deadline())) {
      }
    end(message.ticket);
  }

  /// Ends the group because the handle of a started call was dropped.
  void fail_dropped(const CollectiveCall& call) noexcept {
    fail([&] {
      Failure out;
      out.kind = Failure::Kind::abandoned;
      out.rank = world_rank(rank_);
      out.sentence = dropped_sentence(call, 0);
      out.unwinding = std::uncaught_exceptions() > 0;
      return out;
    });
  }

  /// Ends the group because this rank is out of memory, and its std::bad_alloc is propagating.
  void fail_out_of_memory() noexcept {
    told_.store(true, std::memory_order_relaxed);
    group_->fail(out_of_memory_failure());
  }

  /// @throws std::bad_alloc, but only after it has ended the world.
  void abort(const std::string& reason) {
    told_.store(true, std::memory_order_relaxed);
    try {
      auto failure = std::make_shared<Failure>();
      failure->kind = Failure::Kind::aborted;
      failure->rank = world_rank(rank_);
      failure->sentence = reason;
      world().end(failure);
    } catch (const std::bad_alloc&) {
      world().end(out_of_memory_failure());
      throw;
    }
  }

  [[nodiscard]] ErrorContext context(const CollectiveCall& call, std::uint64_t sequence) const {
    return {world_rank(rank_), name(), std::string(name_of(call.operation)), sequence, {}, call.where};
  }

  /// Records in the flight recorder that a call begins, in which the rank waits unless it is `started`;
  /// `peer` is a world rank in a message.
  [[nodiscard]] FlightRecorder::Ticket begin(const CollectiveCall& call, std::uint64_t sequence, bool started,
                                             int peer = -1) {
    world().note_core(world_rank(rank_));
    const GroupOfWorld* id = group_.get();
    return recorder().begin(
        {call.operation, name(), id, sequence, peer, call.tag, call.where, true, !started});
  }
  void end(FlightRecorder::Ticket ticket) noexcept { recorder().end(ticket); }
  /// Records that the rank waits for a call that it has started.
  void wait(FlightRecorder::Ticket ticket) noexcept { recorder().wait(ticket); }
  /// During its lifetime, the rank waits for the collectives that it has started.
  class WaitsForStarted {
  public:
    explicit WaitsForStarted(GroupMember& member) : recorder_(member.recorder()) {
      const GroupOfWorld* id = member.group_.get();
      recorder_.wait_for_group(id);
    }
    ~WaitsForStarted() { recorder_.wait_for_group(nullptr); }
    WaitsForStarted(const WaitsForStarted&) = delete;
    WaitsForStarted& operator=(const WaitsForStarted&) = delete;

  private:
    FlightRecorder& recorder_;
  };
  /// Ends an entry of the flight recorder, however its call ends.
  class Recording {
  public:
    Recording(GroupMember& member, FlightRecorder::Ticket ticket) : member_(member), ticket_(ticket) {}
    ~Recording() { member_.end(ticket_); }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

  private:
    GroupMember& member_;
    FlightRecorder::Ticket ticket_;
  };

  /// Throws the error that the group's end means for this call.
  /// @param tells whether that is the one report to the rank; its worker may ask at the same time
  [[noreturn]] void raise(const CollectiveCall& call, std::uint64_t sequence, bool tells = true) {
    note_given_up(call);
    const bool told =
        tells ? told_.exchange(true, std::memory_order_relaxed) : told_.load(std::memory_order_relaxed);
    if (world().finished())
      throw LifecycleError(used_after_launch(call.operation), context(call, sequence));
    const FailurePointer failure = first_cause(call);
    if (failure == out_of_memory_failure())
      throw std::bad_alloc();
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
    fail([&] {
      Failure failure;
      failure.kind = Failure::Kind::mismatch;
      failure.rank = world_rank(rank_);
      failure.sentence = sentence;
      return failure;
    });
    told_.store(true, std::memory_order_relaxed);
    throw CollectiveMismatch(std::string(name_of(call.operation)) + ": " + sentence, context(call, sequence));
  }

  /// The activities of world ranks, for a report.
  [[nodiscard]] std::string whereabouts_of(const std::vector<int>& world_ranks) const {
    return whereabouts(world_ranks, [this](int rank) { return world().recorder(rank).describe(); });
  }

  /// The failure of ranks that did not arrive at a collective, by the deadline or, if it never ends, before.
  [[nodiscard]] FailurePointer late(const CollectiveCall& call, std::uint64_t sequence,
                                    bool never = false) const noexcept {
    return in_memory([&] {
      Failure out = late(call, sequence, group_->absent(sequence), {}, never);
      out.sequence = sequence;
      return out;
    });
  }
  /// Whether this rank and others wait for one another in a ring; takes a moment if they do.
  [[nodiscard]] bool never_ends() const noexcept {
    try {
      RingWatch watch;
      for (;; std::this_thread::sleep_for(RingWatch::lasting / 4)) {
        const RingWatch::Verdict verdict = watch.look(world(), world_rank(rank_), WaitClock::now());
        if (verdict != RingWatch::Verdict::young)
          return verdict == RingWatch::Verdict::lasting;
      }
    } catch (const std::bad_alloc&) {
      return false; // the deadline remains
    }
  }

private:
  [[nodiscard]] FlightRecorder& recorder() const { return world().recorder(world_rank(rank_)); }
  [[nodiscard]] const FailurePointer& out_of_memory_failure() const noexcept {
    return world().out_of_memory_on(world_rank(rank_));
  }

  /// The failure built by `make()`, or that this rank has no memory to build it.
  template <class Make> [[nodiscard]] FailurePointer in_memory(Make&& make) const noexcept {
    try {
      return std::make_shared<const Failure>(make());
    } catch (const std::bad_alloc&) {
      return out_of_memory_failure();
    }
  }
  /// Ends the group with a failure caused by this rank.
  template <class Make> void fail(Make&& make) noexcept { group_->fail(in_memory(std::forward<Make>(make))); }

  /// The sentence about the two sides of a message, by world ranks.
  [[nodiscard]] std::string mismatch_of(const ThreadMessage& message) const {
    const int peer = world_rank(message.call.root);
    return message.call.operation == Operation::send
               ? message_mismatch(world_rank(rank_), message.call, message.sequence, peer, *message.met,
                                  message.met_sequence)
               : message_mismatch(peer, *message.met, message.met_sequence, world_rank(rank_), message.call,
                                  message.sequence);
  }
  [[nodiscard]] Failure late(const ThreadMessage& message, bool never = false) const {
    return late(message.call, message.sequence, {world_rank(message.call.root)},
                group_->mailbox().offered(message), never);
  }
  [[nodiscard]] Failure late(const CollectiveCall& call, std::uint64_t sequence,
                             const std::vector<int>& awaited, const std::string& offered, bool never) const {
    HoldUp found = HoldUpSearch(world(), world_rank(rank_), world().deadline()).follow(awaited);
    const bool before_deadline = never && !found.ring.empty();
    Failure out;
    out.kind = Failure::Kind::deadline;
    out.rank = world_rank(rank_);
    out.sentence = late_sentence(
        name(), call, sequence, before_deadline ? std::chrono::nanoseconds(0) : world().deadline(), awaited,
        found, offered, [this](int rank) { return world().recorder(rank).describe(); });
    out.missing = std::move(found.ranks);
    return out;
  }
  /// The failure of the group that a call encounters, if there is one.
  [[nodiscard]] FailurePointer end_for(const CollectiveCall& call) const {
    return sends_or_receives(call.operation) ? group_->failure_for(call.root) : group_->failure();
  }
  /// Records that this rank leaves a call at a deadline because others did not arrive, if that is why the
  /// group has ended.
  void note_given_up(const CollectiveCall& call) const {
    const FailurePointer failure = end_for(call);
    if (failure && failure->kind == Failure::Kind::deadline &&
        std::find(failure->missing.begin(), failure->missing.end(), world_rank(rank_)) ==
            failure->missing.end())
      world().note_given_up(world_rank(rank_), failure);
  }

  /// The failure that ends a call. One that was detected while an exception was propagating gives that
  /// exception a moment to reach launch(), since it is the original cause. The rank that throws does not wait
  /// for itself.
  [[nodiscard]] FailurePointer first_cause(const CollectiveCall& call) const {
    FailurePointer failure = end_for(call);
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
  std::shared_ptr<Failure> leaving_; ///< Allocated while there is memory.
  std::atomic<std::uint64_t> messages_{0};
  std::atomic<bool> told_{false};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
