// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One rank's side of a group of thread ranks in device memory: its calls, started and blocking.

#include <shardwright/comm/pending.hpp>
#include <shardwright/comm/threads/group_member.hpp>
#include <shardwright/device/peers/group.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One rank's side of a PeerGroup, bound to the stream of the rank. For one thread at a time.
template <PeerRuntime Runtime>
class PeerMember : public GroupMember<PeerGroup<Runtime>> {
  using Base = GroupMember<PeerGroup<Runtime>>;
  using Stream = typename Runtime::Stream;
  using Round = typename PeerGroup<Runtime>::Round;

public:
  PeerMember(std::shared_ptr<PeerGroup<Runtime>> group, int rank, Stream stream)
      : Base(std::move(group), rank), stream_(std::move(stream)), patience_(this->world().patience()),
        slot_(1) {}

  void run(const CollectiveCall& call) {
    this->admit(call);
    if (sends_or_receives(call.operation)) {
      Letter& letter = post(call);
      return finish(letter);
    }
    if (this->size() == 1)
      return run_alone(call);
    const typename Base::Recording recording(*this, call, sequence_ + 1, -1);
    finish(enter(call, false), call);
  }

  [[nodiscard]] PendingOperation* start(const CollectiveCall& call) {
    this->admit(call);
    if (sends_or_receives(call.operation))
      return &post(call);
    Work& work = take(free_works_, works_);
    Returned<Work> back(free_works_, work); // unless the call was started
    work.round = nullptr;
    if (this->size() == 1) {
      run_alone(call);
    } else {
      work.ticket = this->recorder().begin(this->entry(call, sequence_ + 1, -1));
      work.round = &enter(call, true);
    }
    back.keep();
    return &work;
  }

private:
  /// A started collective; without a round where the rank is alone.
  struct Work final : PendingOperation {
    explicit Work(PeerMember& owner) : member(owner) {}
    [[nodiscard]] bool ready() override { return round == nullptr || member.ready(*round); }
    void wait() override { member.wait(*this); }
    void abandon() noexcept override { member.abandon(*this); }
    PeerMember& member;
    Round* round = nullptr;
    FlightRecorder::Ticket ticket = 0;
  };
  /// A message under way.
  struct Letter final : PendingOperation {
    explicit Letter(PeerMember& owner)
        : member(owner), message(owner.group().devices(), owner.group().device_of(owner.rank())) {}
    [[nodiscard]] bool ready() override {
      return message.over() ? member.runtime().done(carried()) : member.group().ended_for(message.call.root);
    }
    void wait() override { member.finish(*this); }
    void abandon() noexcept override { member.abandon(*this); }
    /// The receiver's device carries.
    [[nodiscard]] typename Runtime::Event& carried() {
      const int receiver = message.call.operation == Operation::send ? message.call.root : member.rank();
      return message.carried[member.group().device_of(receiver)];
    }
    PeerMember& member;
    PeerMessage<Runtime> message;
  };
  /// Gives a record back at the end, by return or by exception.
  template <class Record>
  class Returned {
  public:
    Returned(std::vector<Record*>& free, Record& record) : free_(free), record_(&record) {}
    ~Returned() {
      if (record_ != nullptr)
        free_.push_back(record_); // there is room: see take()
    }
    Returned(const Returned&) = delete;
    Returned& operator=(const Returned&) = delete;
    void keep() noexcept { record_ = nullptr; }

  private:
    std::vector<Record*>& free_;
    Record* record_;
  };
  template <class Record>
  [[nodiscard]] Record& take(std::vector<Record*>& free, std::vector<std::unique_ptr<Record>>& all) {
    if (free.empty()) {
      free.reserve(all.size() + 1);
      return *all.emplace_back(std::make_unique<Record>(*this));
    }
    Record* const out = free.back();
    free.pop_back();
    return *out;
  }

  [[nodiscard]] Runtime& runtime() const noexcept { return this->group().runtime(this->rank()); }

  /// Publishes this rank's part of its next collective.
  [[nodiscard]] Round& enter(const CollectiveCall& call, bool keep) {
    Round* const round = this->group().join(sequence_ + 1, works_.size() + 1);
    if (round == nullptr)
      this->raise(call, 0);
    auto& part = round->parts[static_cast<std::size_t>(this->rank())];
    const CollectiveCall* shown = &call;
    if (keep) {
      part.call = call;
      part.in_blocks.assign(call.in_blocks.begin(), call.in_blocks.end());
      part.out_blocks.assign(call.out_blocks.begin(), call.out_blocks.end());
      part.call.in_blocks = part.in_blocks;
      part.call.out_blocks = part.out_blocks;
      shown = &part.call;
    }
    runtime().record(part.ready, stream_);
    this->show(round->slots[static_cast<std::size_t>(this->rank())], *shown, sequence_ + 1);
    ++sequence_;
    if (!this->group().arrive(*round, *this))
      this->raise(call, sequence_);
    return *round;
  }

  /// Waits on the host until the round is launched, and puts the rank's stream behind it.
  void finish(Round& round, const CollectiveCall& call) {
    const std::uint64_t sequence = round.sequence;
    if (!round.over()) {
      const bool awake = this->group().await(round, patience_);
      if (!awake && this->group().give_up(
                        round, std::make_shared<const Failure>(late_collective(*this, call, sequence))))
        this->raise(call, sequence);
      if (!round.over())
        this->raise(call, sequence);
    }
    switch (round.state.load(std::memory_order_seq_cst)) {
    case Round::State::mismatched:
      this->disagree(round.sentence, call, sequence);
    case Round::State::clashing: {
      const std::string sentence = round.sentence;
      this->group().leave_round(round);
      throw InvalidArgument(std::string(name_of(call.operation)) + ": " + sentence,
                            this->context(call, sequence));
    }
    default:
      round.put_before(runtime(), stream_);
      this->group().leave_round(round);
    }
  }

  void wait(Work& work) {
    const Returned<Work> back(free_works_, work);
    if (work.round == nullptr)
      return;
    const Ended ended(this->recorder(), work.ticket);
    // The round may be another collective's as soon as it is left.
    const CollectiveCall call = work.round->parts[static_cast<std::size_t>(this->rank())].call;
    finish(*work.round, call);
  }
  [[nodiscard]] bool ready(Round& round) {
    switch (round.state.load(std::memory_order_seq_cst)) {
    case Round::State::open:
      return this->group().ended();
    case Round::State::launched:
      return round.done(runtime());
    default:
      return true;
    }
  }
  /// The buffers may be used again in the stream's order as soon as this returns.
  void abandon(Work& work) noexcept {
    const Returned<Work> back(free_works_, work);
    if (work.round == nullptr)
      return;
    const Ended ended(this->recorder(), work.ticket);
    this->fail(this->dropped(work.round->parts[static_cast<std::size_t>(this->rank())].call));
    if (work.round->state.load(std::memory_order_seq_cst) == Round::State::launched)
      put_behind([&] { work.round->put_before(runtime(), stream_); });
  }

  [[nodiscard]] Letter& post(const CollectiveCall& call) {
    Letter& letter = take(free_letters_, letters_);
    Returned<Letter> back(free_letters_, letter);
    letter.message.broken.clear();
    runtime().record(letter.message.ready, stream_);
    Base::post(letter.message, call);
    back.keep();
    return letter;
  }
  void finish(Letter& letter) {
    const Returned<Letter> back(free_letters_, letter);
    Base::finish(letter.message, patience_);
    const PeerMessage<Runtime>& message = letter.message;
    if (!message.broken.empty())
      throw TransportError(0, std::string(name_of(message.call.operation)) + ": " + message.broken,
                           this->context(message.call, message.sequence));
    runtime().wait(stream_, letter.carried());
  }
  void abandon(Letter& letter) noexcept {
    const Returned<Letter> back(free_letters_, letter);
    this->fail(this->dropped(letter.message.call));
    this->discard(letter.message, patience_);
    if (letter.message.state.load(std::memory_order_seq_cst) == ThreadMessage::State::done)
      put_behind([&] { runtime().wait(stream_, letter.carried()); });
  }
  template <class Wait>
  void put_behind(Wait wait) noexcept {
    try {
      wait();
    } catch (
        const std::exception&) { // NOLINT(bugprone-empty-catch): the device has failed, the next call says so
    }
  }

  /// A rank by itself needs no other stream: its copies go where its kernels go.
  void run_alone(const CollectiveCall& call) {
    this->show(slot_.front(), call, 0);
    note_begin(runtime(), stream_, call.times);
    if (work_.build(slot_.data(), 1)) { // a few entries
      bool reads_table = false;
      launch_work(runtime(), stream_, work_, nullptr, reads_table);
    }
    note_end(runtime(), stream_, call.times);
  }

  /// Ends an entry of the flight recorder.
  struct Ended {
    Ended(FlightRecorder& of, FlightRecorder::Ticket which) : recorder(of), ticket(which) {}
    ~Ended() { recorder.end(ticket); }
    Ended(const Ended&) = delete;
    Ended& operator=(const Ended&) = delete;
    FlightRecorder& recorder;
    FlightRecorder::Ticket ticket;
  };

  Stream stream_;
  Patience patience_;
  std::uint64_t sequence_ = 0;
  std::vector<std::unique_ptr<Work>> works_;
  std::vector<std::unique_ptr<Letter>> letters_;
  std::vector<Work*> free_works_;
  std::vector<Letter*> free_letters_;
  std::vector<ThreadSlot> slot_; // of a rank that is alone, as is the list
  PeerWorkList work_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
