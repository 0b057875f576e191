// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Communication in device memory between ranks that are threads of one process and share a device.

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/launch_options.hpp>
#include <shardwright/comm/threads/group_member.hpp>
#include <shardwright/device/driven_transports.hpp>
#include <shardwright/device/peers/group.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Collective: whether the ranks of a group, which are threads, are on one device.
/// @param other the first rank on a different device from the first rank's.
[[nodiscard]] inline bool share_device(HostCommunicator group, int device, int* other = nullptr) {
  const std::array<int, 1> own{device};
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  group.all_gather(own, all);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all.front()) {
      if (other != nullptr)
        *other = static_cast<int>(rank);
      return false;
    }
  return true;
}

} // namespace detail

/// @brief The transport of thread ranks on one device: kernels on streams of the group, ordered with the
/// ranks' streams by events. For one thread of each rank at a time.
///
/// A collective is one meeting of the ranks on the host and one launch, by the rank that comes last, for all
/// of them; a message is copied by a launch of the side that comes second. Reductions are bitwise the same as
/// on the host. Waits, deadlines and failures are those of thread ranks. A single rank copies on its own
/// stream, and its started calls are ready immediately. Allocates nothing in steady state. CallTimes are
/// recorded by the device when it reaches the rank's part, after `run` and `wait` have returned.
template <PeerRuntime Runtime>
class PeerTransport final : public Transport, public std::enable_shared_from_this<PeerTransport<Runtime>> {
  using Stream = typename Runtime::Stream;
  using Group = detail::PeerGroup<Runtime>;
  using Round = typename Group::Round;
  using Message = typename Group::Message;
  using Recording = detail::GroupMember::Recording;
  /// Without a round if there is only one rank.
  struct Collective {
    Round* round = nullptr;
    FlightRecorder::Ticket ticket = 0;
  };
  using StartedCollective = detail::StartedCall<PeerTransport, Collective>;
  using StartedMessage = detail::StartedCall<PeerTransport, Message>;

public:
  /// @brief Collective over `group`, whose ranks are threads of this process; each passes the runtime of the
  /// device, and its stream there. Cost: three short calls of the group, which wait.
  /// @throws ConfigurationMismatch if the ranks are processes, or on several devices.
  [[nodiscard]] static std::shared_ptr<PeerTransport> connect(HostCommunicator group, Runtime runtime,
                                                              Stream stream) {
    const detail::ThreadRanks* const threads = detail::ThreadRanks::of(group);
    std::shared_ptr<detail::ThreadWorld> world = threads != nullptr ? threads->world() : nullptr;
    if (group.size() == 1) {
      if (!world) // a process: no other rank is in its process
        world = std::make_shared<detail::ThreadWorld>(1, LaunchOptions{.deadline = group.deadline()});
      auto own = make_group(group, std::move(world), std::move(runtime));
      return std::make_shared<PeerTransport>(std::move(group), std::move(own), std::move(stream));
    }
    const ErrorContext context{group.world_rank(), group.name(), "connect", 0, {}, {}};
    if (!world)
      throw ConfigurationMismatch(
          "connect: ranks that share a device through peer kernels must be threads of one process, but those of this group are processes (use NCCL, or start the ranks as threads)",
          context);
    int other = 0;
    if (!detail::share_device(group, runtime.device(), &other))
      throw ConfigurationMismatch(
          "connect: thread ranks must share one device through peer kernels, but ranks " +
              std::to_string(group.world_rank(0)) + " and " + std::to_string(group.world_rank(other)) +
              " are on different ones (use NCCL, or give all threads one device)",
          context);
    // The first rank's pointer, at an address that all ranks may read as long as their programs run: a rank
    // may fail before all have read it, and the first may have left this function by then.
    std::shared_ptr<std::shared_ptr<Group>> shared;
    if (group.rank() == 0) {
      shared = std::make_shared<std::shared_ptr<Group>>(make_group(group, world, std::move(runtime)));
      world->keep(shared);
    }
    std::array<std::uint64_t, 1> address{reinterpret_cast<std::uintptr_t>(shared.get())};
    group.broadcast(address, 0);
    auto own = *reinterpret_cast<const std::shared_ptr<Group>*>(static_cast<std::uintptr_t>(address[0]));
    auto out = std::make_shared<PeerTransport>(group, std::move(own), std::move(stream));
    group.barrier();
    if (shared) { // all have read it
      shared->reset();
      world->let_go(shared);
    }
    return out;
  }

  PeerTransport(HostCommunicator host, std::shared_ptr<Group> group, Stream stream)
      : host_(std::move(host)), group_(*group), member_(std::move(group), host_.rank()),
        stream_(std::move(stream)), patience_(member_.world().patience()), slot_(1) {}

  [[nodiscard]] int rank() const noexcept override { return member_.rank(); }
  [[nodiscard]] int size() const noexcept override { return member_.size(); }
  [[nodiscard]] int world_rank(int rank) const override { return member_.world_rank(rank); }
  [[nodiscard]] std::string name() const override { return member_.name(); }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override { return host_.deadline(); }

  void run(const CollectiveCall& call) override {
    member_.admit(call);
    if (detail::sends_or_receives(call.operation))
      return wait(post(call));
    if (size() == 1)
      return run_alone(call);
    const Recording recording(member_, member_.begin(call, sequence_ + 1, false));
    finish(enter(call, false), call);
  }

  [[nodiscard]] Pending start(const CollectiveCall& call) override {
    member_.admit(call);
    if (detail::sends_or_receives(call.operation))
      return pending(&post(call));
    StartedCollective& started = collectives_.take(*this);
    Returned<StartedCollective> back(collectives_, started); // unless the call was started
    started.round = nullptr;
    if (size() == 1) {
      run_alone(call);
    } else {
      started.ticket = member_.begin(call, sequence_ + 1, true);
      started.round = &enter(call, true);
    }
    return pending(back.release());
  }

  [[nodiscard]] std::shared_ptr<Transport> split(const GroupRule& rule, std::string name,
                                                 SourceLocation where) override {
    HostCommunicator part = host_.split_by(rule, std::move(name), where);
    return part.valid() ? connect(std::move(part), runtime(), stream_) : nullptr;
  }
  void abort(const std::string& reason) override { member_.abort(reason); }
  /// Kernels of a group complete by themselves, whatever happens to its ranks.
  void await_stream(SourceLocation) override {
    if (!stream_event_)
      stream_event_.emplace(runtime().make_event());
    runtime().record(*stream_event_, stream_);
    static_cast<void>(detail::await_device([this] { return runtime().done(*stream_event_); }));
  }
  void require_alive(const CollectiveCall& call) override { member_.require_alive(call); }

private:
  template <class Owner, class State> friend struct detail::StartedCall;
  template <class Record> using Returned = typename detail::RecordPool<Record>::Return;

  [[nodiscard]] static std::shared_ptr<Group>
  make_group(const HostCommunicator& group, std::shared_ptr<detail::ThreadWorld> world, Runtime runtime) {
    std::vector<int> members;
    for (int rank = 0; rank < group.size(); ++rank)
      members.push_back(group.world_rank(rank));
    return std::make_shared<Group>(std::move(world), std::move(members), group.name(), std::move(runtime));
  }

  [[nodiscard]] Runtime& runtime() const noexcept { return group_.runtime(); }
  [[nodiscard]] Pending pending(PendingOperation* operation) {
    return Pending(std::shared_ptr<PendingOperation>(this->shared_from_this(), operation));
  }

  /// Publishes this rank's part of its next collective.
  [[nodiscard]] Round& enter(const CollectiveCall& call, bool keep) {
    Round* const round = group_.join(sequence_ + 1, collectives_.size() + 1);
    if (round == nullptr)
      member_.raise(call, 0);
    auto& part = round->parts[static_cast<std::size_t>(rank())];
    if (keep)
      part.copy(call);
    runtime().record(part.ready, stream_);
    ++sequence_;
    round->slots[static_cast<std::size_t>(rank())].show(keep ? part.call : call, rank(), size(), sequence_,
                                                        member_.world().check());
    if (!group_.arrive(*round, rank()))
      member_.raise(call, sequence_);
    return *round;
  }

  /// Waits on the host until the round is launched, and makes the rank's stream wait for it.
  void finish(Round& round, const CollectiveCall& call) {
    const std::uint64_t sequence = round.sequence;
    if (!round.over()) {
      const bool awake = group_.await(round, patience_);
      if (!awake && group_.give_up(sequence, member_.late(call, sequence)))
        member_.raise(call, sequence);
      if (!round.over())
        member_.raise(call, sequence);
    }
    switch (round.state.load(std::memory_order_seq_cst)) {
    case Round::State::mismatched:
      member_.disagree(round.sentence, call, sequence);
    case Round::State::clashing: {
      const std::string sentence = round.sentence;
      group_.leave_round(round);
      throw InvalidArgument(std::string(name_of(call.operation)) + ": " + sentence,
                            member_.context(call, sequence));
    }
    default:
      runtime().wait(stream_, round.done);
      group_.leave_round(round);
    }
  }

  [[nodiscard]] StartedMessage& post(const CollectiveCall& call) {
    StartedMessage& started = messages_.take(*this, runtime());
    Returned<StartedMessage> back(messages_, started);
    started.broken.clear();
    runtime().record(started.posted, stream_);
    member_.post(started, call, true);
    return *back.release();
  }

  // Called by the handles of started calls.
  [[nodiscard]] bool ready(Collective& started) {
    if (started.round == nullptr)
      return true;
    switch (started.round->state.load(std::memory_order_seq_cst)) {
    case Round::State::open:
      return group_.ended();
    case Round::State::launched:
      return runtime().done(started.round->done);
    default:
      return true;
    }
  }
  [[nodiscard]] bool expire(Collective& started, std::chrono::nanoseconds polled) {
    if (polled <= deadline() || started.round->state.load(std::memory_order_seq_cst) != Round::State::open)
      return false;
    const CollectiveCall& call = started.round->parts[static_cast<std::size_t>(rank())].call;
    return group_.give_up(started.round->sequence, member_.late(call, started.round->sequence));
  }
  void wait(StartedCollective& started) {
    const Returned<StartedCollective> back(collectives_, started);
    if (started.round == nullptr)
      return;
    const Recording recording(member_, started.ticket);
    member_.wait(started.ticket);
    // The round may be reused as soon as it is left.
    const CollectiveCall call = started.round->parts[static_cast<std::size_t>(rank())].call;
    finish(*started.round, call);
  }
  /// The buffers may be reused in stream order as soon as this returns.
  void abandon(StartedCollective& started) noexcept {
    const Returned<StartedCollective> back(collectives_, started);
    if (started.round == nullptr)
      return;
    const Recording recording(member_, started.ticket);
    member_.fail_dropped(started.round->parts[static_cast<std::size_t>(rank())].call);
    if (started.round->state.load(std::memory_order_seq_cst) == Round::State::launched)
      put_behind(started.round->done);
  }
  [[nodiscard]] bool ready(Message& message) {
    return message.over() ? runtime().done(message.carried) : group_.ended_for(message.call.root);
  }
  [[nodiscard]] bool expire(Message& message, std::chrono::nanoseconds polled) {
    return !message.over() && member_.expire(message, polled);
  }
  void wait(StartedMessage& started) {
    const Returned<StartedMessage> back(messages_, started);
    member_.wait_for(started, patience_);
    if (!started.broken.empty())
      throw TransportError(0, std::string(name_of(started.call.operation)) + ": " + started.broken,
                           member_.context(started.call, started.sequence));
    runtime().wait(stream_, started.carried);
  }
  void abandon(StartedMessage& started) noexcept {
    const Returned<StartedMessage> back(messages_, started);
    member_.fail_dropped(started.call);
    member_.discard(started, patience_);
    if (started.state.load(std::memory_order_seq_cst) == detail::ThreadMessage::State::done)
      put_behind(started.carried);
  }
  void put_behind(typename Runtime::Event& event) noexcept {
    try {
      runtime().wait(stream_, event);
    } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): the device has failed; the next call
                                      // reports it
    }
  }

  /// A single rank needs no other stream: its copies run on the stream of its kernels.
  void run_alone(const CollectiveCall& call) {
    slot_.front().show(call, 0, 1, 0, false);
    detail::note_begin(runtime(), stream_, call.times);
    if (work_.build(slot_.data(), 1)) // a few entries, which need no table
      static_cast<void>(
          detail::launch_work(runtime(), stream_, work_, static_cast<typename Runtime::Table*>(nullptr)));
    detail::note_end(runtime(), stream_, call.times);
  }

  HostCommunicator host_;
  Group& group_;
  detail::GroupMember member_;
  Stream stream_;
  const detail::Patience patience_;
  std::uint64_t sequence_ = 0;
  detail::RecordPool<StartedCollective> collectives_;
  detail::RecordPool<StartedMessage> messages_;
  std::vector<detail::ThreadSlot> slot_; // for a single rank, like the list
  detail::PeerWorkList work_;
  std::optional<typename Runtime::Event> stream_event_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
