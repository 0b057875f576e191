// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The shared side of thread ranks in device memory: rounds, in which the ranks' calls meet, and the
/// streams that do their work.

#include <shardwright/comm/call_marks.hpp>
#include <shardwright/comm/threads/group.hpp>
#include <shardwright/comm/threads/mailbox.hpp>
#include <shardwright/comm/threads/report.hpp>
#include <shardwright/comm/threads/world.hpp>
#include <shardwright/comm/waiting.hpp>
#include <shardwright/device/peers/round.hpp>
#include <shardwright/device/peers/work.hpp>
#include <shardwright/device/runtime.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A group of thread ranks on one device, or on several that reach one another's memory.
///
/// Collective number n of every rank belongs to round n. The rank that comes last launches the work of all:
/// one launch for each device, on the group's stream there, behind the ready events of all ranks, so the host
/// never waits for a device. A rank's stream waits for all devices. All of this under one mutex, so rounds
/// are launched in their order. One that fails on a device ends the group, and ranks hear of it only when the
/// other devices are done with their buffers.
template <PeerRuntime Runtime>
class PeerGroup final : public GroupOfWorld {
  using Stream = typename Runtime::Stream;
  using Event = typename Runtime::Event;

public:
  using Device = PeerDevice<Runtime>;
  using Round = PeerRound<Runtime>;

  /// Runtimes are by rank; those of one device are taken to be the same.
  PeerGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members, const std::string& name,
            const std::vector<Runtime>& runtimes)
      : world_(std::move(world)), members_(std::move(members)), name_(world_->intern(name)),
        incoming_(members_.size()), ranks_(std::make_unique<Rank[]>(members_.size())),
        mailbox_(static_cast<int>(members_.size()), Carrier{this}) {
    for (const Runtime& runtime : runtimes) {
      const auto known = std::find_if(devices_.begin(), devices_.end(), [&](const Device& device) {
        return device.runtime.device() == runtime.device();
      });
      device_of_.push_back(static_cast<unsigned>(known - devices_.begin()));
      if (known == devices_.end())
        devices_.push_back({runtime, std::nullopt});
    }
    world_->enter(this);
  }
  ~PeerGroup() override { world_->leave(this); }
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  [[nodiscard]] ThreadWorld& world() const noexcept { return *world_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] int world_rank(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] std::vector<Device>& devices() noexcept { return devices_; }
  /// The number of a rank's device among those of the group.
  [[nodiscard]] unsigned device_of(int rank) const noexcept {
    return device_of_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Runtime& runtime(int rank) noexcept { return devices_[device_of(rank)].runtime; }
  [[nodiscard]] auto& mailbox() noexcept { return mailbox_; }

  [[nodiscard]] std::vector<int> absent(std::uint64_t sequence) const override {
    std::vector<int> out;
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
      if (ranks_[rank].entered.load(std::memory_order_seq_cst) < sequence)
        out.push_back(members_[rank]);
    return out;
  }

  /// The round of a rank's collective; null once the group has ended. `under_way` is the most calls that the
  /// rank has had under way at a time, this one among them.
  ///
  /// Where every rank has at most m under way and waits for them in order, a rank that comes to a round has
  /// left all but the last m, so every rank has come to those, and has left all but the m before. So 2 m
  /// rounds are enough however the ranks run; made at once, they are there before a run is steady.
  [[nodiscard]] Round* join(std::uint64_t sequence, std::size_t under_way) {
    const std::lock_guard lock(mutex_);
    if (failure_)
      return nullptr;
    while (rounds_.size() < 2 * under_way) {
      Round* const more = make_round();
      more->next = spare_;
      spare_ = more;
    }
    Round** at = &open_;
    while (*at != nullptr && (*at)->sequence != sequence)
      at = &(*at)->next;
    if (*at == nullptr)
      *at = fresh(sequence);
    return *at;
  }

  /// Adds a rank's part, whose slot is filled and whose ready event is recorded; the last one launches. False
  /// once the group has ended. @throws TransportError where the device fails.
  template <class Member>
  [[nodiscard]] bool arrive(Round& round, const Member& member) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_)
        return false;
      ranks_[static_cast<std::size_t>(member.rank())].entered.store(round.sequence,
                                                                    std::memory_order_seq_cst);
      if (++round.arrived < size())
        return true;
      const ThreadSlot* const slots = round.slots.data();
      auto state = Round::State::launched;
      if (world_->check() && !consistent(slots, size())) {
        round.sentence = mismatch_sentence(member, slots, round.sequence);
        state = Round::State::mismatched;
      } else if (world_->check() && buffers_clash(slots, size())) {
        round.sentence = clash_sentence(member, slots);
        state = Round::State::clashing;
      } else {
        try {
          launch(round);
        } catch (const std::exception& error) {
          settle(round);
          close(broken(member.world_rank(member.rank()), error));
          messages_over_.store(true, std::memory_order_seq_cst);
          wake();
          throw;
        }
      }
      round.state.store(state, std::memory_order_seq_cst);
    }
    point_.notify();
    return true;
  }

  /// Waits on the host until the last rank has come; false if that takes longer than the deadline.
  [[nodiscard]] bool await(const Round& round, const Patience& patience) {
    return point_.wait([&] { return round.over() || ended(); }, patience, world_->deadline());
  }

  /// A rank's stream is behind the round, or the round's sentence was read: nothing of it is needed any more.
  void leave_round(Round& round) noexcept {
    const std::lock_guard lock(mutex_);
    if (++round.left < size())
      return;
    Round** at = &open_;
    while (*at != &round)
      at = &(*at)->next;
    *at = round.next;
    round.next = spare_;
    spare_ = &round;
  }

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
      ranks_[static_cast<std::size_t>(member - members_.begin())].left.store(true, std::memory_order_seq_cst);
    }
    wake();
  }
  /// Ends the group unless the round was launched in the meantime; true if it never will be.
  [[nodiscard]] bool give_up(const Round& round, const FailurePointer& failure) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (round.over())
        return false;
      close(failure);
      messages_over_.store(true, std::memory_order_seq_cst);
    }
    wake();
    return true;
  }
  [[nodiscard]] bool ended() const noexcept { return closed_.load(std::memory_order_seq_cst); }
  [[nodiscard]] bool ended_for(int peer) const noexcept {
    return messages_over_.load(std::memory_order_seq_cst) ||
           ranks_[static_cast<std::size_t>(peer)].left.load(std::memory_order_seq_cst);
  }
  [[nodiscard]] FailurePointer failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

private:
  /// Copies a message on the stream of its receiver, behind what both sides' streams held.
  struct Carrier {
    PeerGroup* group;
    void operator()(ThreadMessage& send, ThreadMessage& receive) const noexcept {
      group->carry(static_cast<PeerMessage<Runtime>&>(send), static_cast<PeerMessage<Runtime>&>(receive));
    }
  };
  struct alignas(128) Rank {
    std::atomic<std::uint64_t> entered{0}; ///< The last collective that the rank has entered.
    std::atomic<bool> left{false};
  };

  void carry(PeerMessage<Runtime>& send, PeerMessage<Runtime>& receive) noexcept {
    try {
      const std::lock_guard lock(carrying_); // senders to one rank share its stream
      const unsigned device = device_of(receive.rank);
      Runtime& runtime = devices_[device].runtime;
      Stream& stream = made(incoming_[static_cast<std::size_t>(receive.rank)], runtime);
      runtime.wait(stream, send.ready);
      runtime.wait(stream, receive.ready);
      note_begin(runtime, stream, send.call.times);
      note_begin(runtime, stream, receive.call.times);
      if (send.call.count > 0)
        runtime.copy(stream, receive.call.out, send.call.in, send.call.count * size_of(send.call.element));
      note_end(runtime, stream, send.call.times);
      note_end(runtime, stream, receive.call.times);
      runtime.record(send.carried[device], stream);
      runtime.record(receive.carried[device], stream);
    } catch (const std::exception& error) {
      send.broken = receive.broken = error.what();
      fail(broken(world_rank(receive.rank), error));
    }
  }

  [[nodiscard]] static FailurePointer broken(int rank, const std::exception& error) {
    auto failure = std::make_shared<Failure>();
    failure->rank = rank;
    failure->sentence = error.what();
    return failure;
  }

  /// A round that no work of the device reads any more.
  [[nodiscard]] Round* fresh(std::uint64_t sequence) {
    Round** at = &spare_;
    while (*at != nullptr && (*at)->reads_table(devices_.front().runtime))
      at = &(*at)->next;
    Round* round = *at;
    if (round != nullptr)
      *at = round->next;
    else
      round = make_round();
    round->sequence = sequence;
    round->arrived = round->left = 0;
    for (auto& launch : round->launches)
      launch.reads_table = false;
    round->next = nullptr;
    round->state.store(Round::State::open, std::memory_order_relaxed);
    return round;
  }

  [[nodiscard]] Round* make_round() {
    return rounds_.emplace_back(std::make_unique<Round>(devices_, device_of_)).get();
  }

  void launch(Round& round) {
    PeerShare share{device_of_.data(), 0, static_cast<unsigned>(devices_.size())};
    for (; share.device < share.devices; ++share.device) {
      Runtime& runtime = devices_[share.device].runtime;
      Stream& stream = made(devices_[share.device].stream, runtime);
      auto& [done, table, reads_table] = round.launches[share.device];
      for (auto& part : round.parts)
        runtime.wait(stream, part.ready);
      for (unsigned rank = 0; rank < device_of_.size(); ++rank)
        if (share.owns(rank))
          note_begin(runtime, stream, round.slots[rank].call->times);
      if (work_.build(round.slots.data(), size(), share))
        launch_work(runtime, stream, work_, table ? &*table : nullptr, reads_table);
      for (unsigned rank = 0; rank < device_of_.size(); ++rank)
        if (share.owns(rank))
          note_end(runtime, stream, round.slots[rank].call->times);
      runtime.record(done, stream);
    }
  }

  /// Waits on the host, until the deadline, for what the devices were given before one of them failed. Under
  /// the mutex, so that no rank leaves the round, and frees its buffers, before.
  void settle(Round& round) noexcept {
    Waiting waiting(world_->deadline());
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      auto& [runtime, stream] = devices_[i];
      Event& done = round.launches[i].done;
      try {
        if (stream)
          runtime.record(done, *stream);
        while (stream && !runtime.done(done) && !waiting.expired())
          waiting.pause();
      } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): nothing runs on a device that failed
      }
    }
  }

  /// Streams are made at their first use: a device has few queues beside one another.
  [[nodiscard]] static Stream& made(std::optional<Stream>& stream, Runtime& runtime) {
    if (!stream)
      stream.emplace(runtime.make_stream());
    return *stream;
  }

  /// Under the mutex: no round is launched from now on.
  void close(const FailurePointer& failure) noexcept {
    if (failure_)
      return;
    failure_ = failure;
    closed_.store(true, std::memory_order_seq_cst);
  }
  void wake() noexcept {
    point_.notify();
    mailbox_.wake();
  }

  std::shared_ptr<ThreadWorld> world_;
  std::vector<int> members_;
  const char* name_;
  std::vector<Device> devices_;
  std::vector<unsigned> device_of_;             ///< By rank.
  std::vector<std::optional<Stream>> incoming_; ///< Of the messages, by receiver, on its device.
  std::mutex carrying_;
  PeerWorkList work_;
  std::unique_ptr<Rank[]> ranks_;
  std::vector<std::unique_ptr<Round>> rounds_;
  Round* open_ = nullptr;  ///< By number.
  Round* spare_ = nullptr; ///< Rounds that all ranks have left.
  BasicThreadMailbox<Carrier> mailbox_;
  alignas(128) WaitPoint point_;
  alignas(128) std::atomic<bool> closed_{false};
  std::atomic<bool> messages_over_{false};
  mutable std::mutex mutex_;
  FailurePointer failure_;
};

/// Launches a work list on a stream; one that is too long goes through the table.
template <class Runtime>
void launch_work(Runtime& runtime, typename Runtime::Stream& stream, PeerWorkList& work,
                 typename Runtime::Table* table, bool& reads_table) {
  const std::byte* entries = nullptr;
  if (!work.fits()) {
    const std::size_t bytes = work.entries().size() * sizeof(PeerEntry);
    std::memcpy(table->host(), work.entries().data(), bytes);
    runtime.upload(stream, *table, bytes);
    entries = table->device();
    reads_table = true;
  }
  work.launch(entries, [&](const auto& kernel, unsigned blocks, std::uint64_t tiles) {
    runtime.launch(stream, kernel, blocks, tiles);
  });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
