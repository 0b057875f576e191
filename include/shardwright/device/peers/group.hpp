// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The shared state of thread ranks with device memory: rounds, in which the ranks' calls meet, and
/// the streams that execute them.

#include <shardwright/comm/call_record.hpp>
#include <shardwright/comm/threads/shared_group.hpp>
#include <shardwright/comm/threads/slot.hpp>
#include <shardwright/comm/waiting.hpp>
#include <shardwright/device/runtime.hpp>
#include <shardwright/device/work_list.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One side of a message in device memory.
template <PeerRuntime Runtime> struct PeerMessage : ThreadMessage {
  explicit PeerMessage(Runtime& runtime) : posted(runtime.make_event()), carried(runtime.make_event()) {}
  typename Runtime::Event posted;  ///< Marks the side's stream when the message was posted.
  typename Runtime::Event carried; ///< The end of the copy.
  std::string broken;              ///< The device's error text if it failed; set before the state.
};

/// The meeting point of a collective's calls.
template <PeerRuntime Runtime> struct PeerRound {
  enum class State : std::uint8_t { open, launched, mismatched, clashing };
  struct Part : KeptCall {
    Part(Runtime& runtime, std::size_t ranks) : ready(runtime.make_event()) {
      in_blocks.reserve(ranks);
      out_blocks.reserve(ranks);
    }
    typename Runtime::Event ready;
  };
  /// A table that any list may need is created immediately, so that it is not allocated later in steady
  /// state.
  PeerRound(Runtime& runtime, std::size_t ranks) : slots(ranks), done(runtime.make_event()) {
    for (std::size_t rank = 0; rank < ranks; ++rank)
      parts.emplace_back(runtime, ranks);
    if (PeerWorkList::most_entries(ranks) > PeerWork::inline_entries)
      table.emplace(runtime.make_table(PeerWorkList::most_entries(ranks) * sizeof(PeerEntry)));
  }
  std::uint64_t sequence = 0;
  std::vector<ThreadSlot> slots;
  std::vector<Part> parts;
  typename Runtime::Event done; ///< The end of the work.
  std::optional<typename Runtime::Table> table;
  bool reads_table = false;
  int arrived = 0;
  int left = 0;
  std::string sentence; ///< Set before the state.
  std::atomic<State> state{State::open};
  PeerRound* next = nullptr;

  [[nodiscard]] bool over() const noexcept { return state.load(std::memory_order_seq_cst) != State::open; }
};

/// A group of thread ranks that share one device.
///
/// Collective number n of every rank belongs to round n. The last rank to arrive launches the work of all, in
/// one launch on the group's stream, after the ready events of all ranks, so the host never waits for the
/// device. All of this happens under the mutex, so rounds are launched in order. A launch that fails ends the
/// group, and ranks learn of it only when the device is done with their buffers.
template <PeerRuntime Runtime> class PeerGroup final : public SharedGroup {
  using Stream = typename Runtime::Stream;

public:
  using Message = PeerMessage<Runtime>;
  using Round = PeerRound<Runtime>;

  PeerGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members, const std::string& name,
            Runtime runtime)
      : SharedGroup(std::move(world), std::move(members), name,
                    [this](ThreadMessage& send, ThreadMessage& receive) {
                      carry(static_cast<Message&>(send), static_cast<Message&>(receive));
                    }),
        runtime_(std::move(runtime)), incoming_(static_cast<std::size_t>(size())),
        entered_(incoming_.size()) {
    this->world().enter(this);
  }
  ~PeerGroup() override { world().leave(this); }

  [[nodiscard]] Runtime& runtime() noexcept { return runtime_; }

  /// The round of a rank's collective; null once the group has ended. `under_way` is the most calls that the
  /// rank has had in flight at the same time, including this one.
  ///
  /// If every rank has at most m in flight and waits for them in order, a rank that enters a round has left
  /// all but the last m, so every rank has entered those, and has left all but the m before them. So 2 m
  /// rounds are always enough; creating them at once avoids allocations in steady state.
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
  /// once the group has ended.
  /// @throws TransportError if the device fails.
  [[nodiscard]] bool arrive(Round& round, int rank) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_)
        return false;
      entered_[static_cast<std::size_t>(rank)].last.store(round.sequence, std::memory_order_seq_cst);
      if (++round.arrived < size())
        return true;
      const ThreadSlot* const slots = round.slots.data();
      auto state = Round::State::launched;
      try {
        if (world().check() && !consistent(slots, size())) {
          round.sentence = mismatch_sentence(*this, slots, round.sequence);
          state = Round::State::mismatched;
        } else if (world().check() && buffers_clash(slots, size())) {
          round.sentence = clash_sentence(*this, slots);
          state = Round::State::clashing;
        } else {
          launch(round);
        }
      } catch (const std::exception& error) {
        await_work(round);
        end(broken(rank, error));
        wake();
        throw;
      }
      round.state.store(state, std::memory_order_seq_cst);
    }
    meeting_.notify();
    return true;
  }

  /// Waits on the host until the last rank has arrived; false if that takes longer than the deadline.
  [[nodiscard]] bool await(const Round& round, const Patience& patience) {
    return meeting_.wait([&] { return round.over() || ended(); }, patience, world().deadline());
  }

  /// A rank's stream now waits for the round, or the rank has read the round's sentence: it no longer needs
  /// the round.
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

private:
  struct alignas(128) Entered {
    std::atomic<std::uint64_t> last{0};
  };

  [[nodiscard]] std::uint64_t entered(std::size_t rank) const noexcept override {
    return entered_[rank].last.load(std::memory_order_seq_cst);
  }

  /// Copies a message on the stream of its receiver, after earlier work on both sides' streams.
  void carry(Message& send, Message& receive) noexcept {
    try {
      const std::lock_guard lock(carrying_); // senders to one rank share its stream
      Stream& stream = made(incoming_[static_cast<std::size_t>(receive.rank)]);
      runtime_.wait(stream, send.posted);
      runtime_.wait(stream, receive.posted);
      note_begin(runtime_, stream, send.call.times);
      note_begin(runtime_, stream, receive.call.times);
      if (send.call.count > 0)
        runtime_.copy(stream, receive.call.out, send.call.in, send.call.count * size_of(send.call.element));
      note_end(runtime_, stream, send.call.times);
      note_end(runtime_, stream, receive.call.times);
      runtime_.record(send.carried, stream);
      runtime_.record(receive.carried, stream);
    } catch (const std::exception& error) {
      for (Message* const each : {&send, &receive})
        try {
          each->broken = error.what();
        } catch (const std::bad_alloc&) {
          each->broken = "no memory"; // short enough to need no allocation
        }
      fail(broken(receive.rank, error));
    }
  }

  [[nodiscard]] FailurePointer broken(int rank, const std::exception& error) const noexcept {
    try {
      auto failure = std::make_shared<Failure>();
      failure->rank = world_rank(rank);
      failure->sentence = error.what();
      return failure;
    } catch (const std::bad_alloc&) {
      return world().out_of_memory_on(world_rank(rank));
    }
  }

  /// A round that no work on the device reads any more.
  [[nodiscard]] Round* fresh(std::uint64_t sequence) {
    Round** at = &spare_;
    while (*at != nullptr && (*at)->reads_table && !runtime_.done((*at)->done))
      at = &(*at)->next;
    Round* round = *at;
    if (round != nullptr)
      *at = round->next;
    else
      round = make_round();
    round->sequence = sequence;
    round->arrived = round->left = 0;
    round->reads_table = false;
    round->next = nullptr;
    round->state.store(Round::State::open, std::memory_order_relaxed);
    return round;
  }
  [[nodiscard]] Round* make_round() {
    return rounds_.emplace_back(std::make_unique<Round>(runtime_, incoming_.size())).get();
  }

  void launch(Round& round) {
    Stream& stream = made(stream_);
    for (auto& part : round.parts)
      runtime_.wait(stream, part.ready);
    for (const ThreadSlot& slot : round.slots)
      note_begin(runtime_, stream, slot.call->times);
    if (work_.build(round.slots.data(), size()))
      round.reads_table = launch_work(runtime_, stream, work_, round.table ? &*round.table : nullptr);
    for (const ThreadSlot& slot : round.slots)
      note_end(runtime_, stream, slot.call->times);
    runtime_.record(round.done, stream);
  }

  /// Waits on the host, until the deadline, for work that was enqueued before the device failed. Under the
  /// mutex, so that no rank leaves the round and frees its buffers before.
  void await_work(Round& round) noexcept {
    try {
      Waiting waiting(world().deadline());
      if (stream_)
        runtime_.record(round.done, *stream_);
      while (stream_ && !runtime_.done(round.done) && !waiting.expired())
        waiting.pause();
    } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): nothing runs on a failed device
    }
  }

  /// Streams are created at their first use: a device has few concurrent queues.
  [[nodiscard]] Stream& made(std::optional<Stream>& stream) {
    if (!stream)
      stream.emplace(runtime_.make_stream());
    return *stream;
  }

  Runtime runtime_;
  std::optional<Stream> stream_;                ///< Of the collectives.
  std::vector<std::optional<Stream>> incoming_; ///< For messages, by receiver.
  std::mutex carrying_;
  PeerWorkList work_;
  std::vector<Entered> entered_;
  std::vector<std::unique_ptr<Round>> rounds_;
  Round* open_ = nullptr;  ///< By number.
  Round* spare_ = nullptr; ///< Rounds that all ranks have left.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
