// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One rank's side of a group of thread ranks: executes collectives and messages, and words their
/// failures.

#include <shardwright/comm/pending.hpp>
#include <shardwright/comm/thread_exchange.hpp>
#include <shardwright/comm/thread_group.hpp>
#include <shardwright/comm/thread_report.hpp>
#include <shardwright/comm/validate.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One rank of a ThreadGroup. Collectives run one at a time, on the rank's thread or on its worker.
template <class Deferred>
class BasicThreadMember {
public:
  BasicThreadMember(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank), exchange_(group_->size()) {}
  BasicThreadMember(const BasicThreadMember&) = delete;
  BasicThreadMember& operator=(const BasicThreadMember&) = delete;
  ~BasicThreadMember() {
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
  [[nodiscard]] ThreadGroup& group() const noexcept { return *group_; }
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

  /// Executes a collective on the calling thread.
  void execute(const CollectiveCall& call, const Patience& patience, const SplitRequest* request = nullptr) {
    const std::uint64_t sequence = ++sequence_;
    const Recording recording(*this, call, sequence, -1);
    ThreadSlot* const slots = group_->slots(sequence);
    publish(slots[rank_], call, request, sequence);
    meet(call, sequence, patience);
    if (world().check())
      compare(call, sequence, slots, patience);
    const Timing timing(call.times);
    if (call.operation == Operation::barrier)
      return;
    if (call.operation == Operation::split)
      return;
    if (world().crowded()) {
      exchange_.prepare(call);
      exchange_for_all(slots, sequence);
      await_release(call, patience);
    } else {
      exchange_.run(slots, rank_);
      part(call, patience);
    }
  }

  /// Executes a split: like a collective, with one more meeting while the new groups are handed over.
  [[nodiscard]] std::shared_ptr<ThreadGroup> split(const CollectiveCall& call, const SplitRequest& request,
                                                   const Patience& patience, int& new_rank) {
    execute(call, patience, &request);
    const ThreadSlot* const slots = group_->slots(sequence_);
    std::vector<int> members;
    for (int r = 0; r < size(); ++r)
      if (slots[r].request->colour == request.colour)
        members.push_back(r);
    const int leader = members.front();
    std::stable_sort(members.begin(), members.end(),
                     [slots](int a, int b) { return slots[a].request->key < slots[b].request->key; });
    new_rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
    if (leader == rank_ && request.colour >= 0)
      create_part(members, request);
    part(call, patience);
    std::shared_ptr<ThreadGroup> out = request.colour >= 0 ? group_->part(leader) : nullptr;
    part(call, patience);
    group_->part(rank_).reset();
    if (request.colour >= 0 && !out)
      throw TransportError(0, "split: the leader of the new group must have memory for it (free some)",
                           context(call, sequence_));
    return out;
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
    ThreadMailbox& mailbox = group_->mailbox();
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
    Failure failure;
    failure.kind = Failure::Kind::mismatch;
    failure.rank = world_rank(rank_);
    failure.sentence = message.mismatch;
    fail(std::move(failure));
    told_.store(true, std::memory_order_relaxed);
    throw CollectiveMismatch(std::string(name_of(message.call.operation)) + ": " + message.mismatch,
                             context(message.call, message.sequence));
  }

  /// Takes a message back, or lets its copy end, when nobody will wait for it.
  void discard(ThreadMessage& message, const Patience& patience) noexcept {
    WaitPoint& point = group_->mailbox().point(rank_);
    if (!message.over() && !group_->mailbox().withdraw(message))
      while (!point.wait([&] { return message.over(); }, patience, world().deadline())) {
      }
    recorder().end(message.ticket);
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

private:
  /// Keeps the flight recorder right however the call ends.
  class Recording {
  public:
    Recording(BasicThreadMember& member, const CollectiveCall& call, std::uint64_t sequence, int peer)
        : recorder_(member.recorder()), ticket_(recorder_.begin(member.entry(call, sequence, peer))) {}
    ~Recording() { recorder_.end(ticket_); }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

  private:
    FlightRecorder& recorder_;
    FlightRecorder::Ticket ticket_;
  };

  /// Notes the times of a collective's exchange for whoever asks.
  class Timing {
  public:
    explicit Timing(CallTimes* times) : times_(times) {
      if (times_ != nullptr)
        times_->begin();
    }
    ~Timing() {
      if (times_ != nullptr)
        times_->end();
    }
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;

  private:
    CallTimes* times_;
  };

  [[nodiscard]] FlightRecorder& recorder() const { return world().recorder(world_rank(rank_)); }
  [[nodiscard]] FlightEntry entry(const CollectiveCall& call, std::uint64_t sequence,
                                  int peer) const noexcept {
    const GroupOfWorld* id = group_.get();
    return {call.operation, name(), id, sequence, peer, call.tag, call.where, true};
  }

  void publish(ThreadSlot& slot, const CollectiveCall& call, const SplitRequest* request,
               std::uint64_t sequence) noexcept {
    slot.call = &call;
    slot.request = request;
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

  /// The meeting before data moves.
  void meet(const CollectiveCall& call, std::uint64_t sequence, const Patience& patience) {
    if (size() == 1)
      return;
    switch (group_->meet(rank_, sequence, patience)) {
    case ThreadGroup::Meeting::complete:
      return;
    case ThreadGroup::Meeting::ended:
      raise(call, sequence);
    case ThreadGroup::Meeting::late:
      break;
    }
    if (group_->give_up(sequence, std::make_shared<const Failure>(late_collective(*this, call, sequence))))
      raise(call, sequence);
  }

  /// Where ranks share cores, those that run do the parts of those that wait for a core, which then find
  /// everything done: half as many switches of threads. Parts whose buffers lie in this core's caches come
  /// first.
  void exchange_for_all(const ThreadSlot* slots, std::uint64_t sequence) {
    ++released_;
    for (const bool near : {true, false})
      for (int step = 0; step < size(); ++step) {
        const int rank = (rank_ + step) % size();
        if (world().balance().together(world_rank(rank_), world_rank(rank)) != near ||
            !group_->claim(rank, sequence))
          continue;
        exchange_.run(slots, rank);
        group_->let_go(rank, released_);
      }
  }

  /// The meeting after data has moved.
  void part(const CollectiveCall& call, const Patience& patience) {
    group_->let_go(rank_, ++released_);
    await_release(call, patience);
  }

  /// Waits until every rank's part is done. A peer that does not come may still be at work on this rank's
  /// buffers, so there is no error to go on from: the process ends instead.
  void await_release(const CollectiveCall& call, const Patience& patience) {
    if (size() == 1)
      return;
    const auto limit = std::max<std::chrono::nanoseconds>(2 * world().deadline(), std::chrono::seconds(60));
    if (group_->await_release(released_, patience, limit))
      return;
    std::fprintf(stderr,
                 "shardwright: %s: a peer stopped while it was moving data of this rank (group %s, rank %d, "
                 "at %s); the process ends because its buffers can no longer be trusted\n",
                 std::string(name_of(call.operation)).c_str(), name(), world_rank(rank_),
                 call.where.text().c_str());
    std::abort();
  }

  /// All ranks come to the same verdict, and stay until everyone has worded it, because it quotes the others'
  /// calls.
  void compare(const CollectiveCall& call, std::uint64_t sequence, const ThreadSlot* slots,
               const Patience& patience) {
    if (consistent(slots, size())) {
      if (!buffers_clash(slots, size()))
        return;
      const std::string sentence = clash_sentence(*this, slots);
      part(call, patience);
      throw InvalidArgument(std::string(name_of(call.operation)) + ": " + sentence, context(call, sequence));
    }
    Failure failure;
    failure.kind = Failure::Kind::mismatch;
    failure.rank = world_rank(rank_);
    failure.sentence = mismatch_sentence(*this, slots, sequence);
    const std::string sentence = std::string(name_of(call.operation)) + ": " + failure.sentence;
    part(call, patience);
    fail(std::move(failure));
    told_.store(true, std::memory_order_relaxed);
    throw CollectiveMismatch(sentence, context(call, sequence));
  }

  void create_part(const std::vector<int>& members, const SplitRequest& request) noexcept {
    try {
      std::vector<int> world_ranks;
      for (const int member : members)
        world_ranks.push_back(world_rank(member));
      const std::string name = request.name->empty()
                                   ? std::string(this->name()) + "/" + std::to_string(request.colour)
                                   : *request.name;
      group_->part(rank_) =
          std::make_shared<ThreadGroup>(group_->shared_world(), std::move(world_ranks), name);
    } catch (...) {
      group_->part(rank_) = nullptr;
    }
  }

  [[nodiscard]] std::string used_after(const CollectiveCall& call) const {
    const FailurePointer failure = group_->failure();
    return std::string(name_of(call.operation)) +
           ": a communicator must not be used after it has failed (end the program, or launch a new world)" +
           (failure ? "; it failed because " + cause_of(*failure) : std::string());
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
                         " (mend that first)",
                     context(call, sequence));
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
  std::uint64_t sequence_ = 0;
  std::uint64_t released_ = 0;
  ThreadExchange exchange_;
  std::atomic<std::uint64_t> messages_{0};
  std::atomic<bool> told_{false};
};
using ThreadMember = BasicThreadMember<void>;

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
