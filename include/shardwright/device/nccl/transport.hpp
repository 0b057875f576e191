// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The NCCL transport: forms the communicator, keeps the order of calls, monitors the streams, and
/// shuts down normally or at the deadline.

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/device/nccl/agreement.hpp>
#include <shardwright/device/nccl/calls.hpp>
#include <shardwright/device/nccl/collective.hpp>
#include <shardwright/device/nccl/member.hpp>
#include <shardwright/device/runtime.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A group of ranks with a GPU each.
///
/// 1. Every communicator of NCCL is non-blocking. Wherever the host waits for the device (for a communicator
///    to form, for NCCL to enqueue a call, in Pending::wait, for a stream, at the end) it polls NCCL's state
///    and the host groups of all communicators of its rank until the deadline; then these are aborted, the
///    host group is informed, and a typed error is thrown. There is no watchdog thread: each call and each
///    wait checks the streams.
/// 2. A call is issued after all earlier ones; `start` returns before that if it would have to wait for
///   other ranks. Packing, NCCL's kernels and unpacking are on one stream: the rank's for `run`, the
///   communicator's for `start`. All ranks issue the same collectives in the same order.
/// 3. Messages are calls like the others; those of one exchange form one group of NCCL. With `check`, the
///    hosts of both sides compare them first.
/// 4. A group that splits off is built over the host group that splits off. ncclCommSplit would need every
///   rank of the parent inside NCCL, with nothing else in progress there, and a missing rank would break the
///   parent; here it only causes a timeout on the host.
template <class Api, class Runtime>
class NcclTransport final : public Transport,
                            public std::enable_shared_from_this<NcclTransport<Api, Runtime>> {
public:
  using Member = NcclMember<Api>;
  using Call = NcclCall<Runtime>;
  using Stream = typename Runtime::Stream;

  /// Collective over `host`, whose ranks form a separate group for this transport.
  /// @throws ConfigurationMismatch if two ranks have one GPU; DeadlineExceeded, PeerFailed, TransportError.
  NcclTransport(HostCommunicator host, Api api, Runtime runtime, Stream stream, NcclOptions options)
      : member_(std::move(api), host.split(0, host.rank(), host.name()), options),
        runtime_(std::move(runtime)), stream_(std::move(stream)), own_stream_(runtime_.make_stream()),
        channel_(member_.new_channel()), agreement_(member_),
        collective_(member_.api(), runtime_, member_.rank(), member_.size()),
        stream_event_(runtime_.make_event()) {
    member_.require_own_devices(forming_);
    form();
    member_.driven().enter(*this);
  }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;
  ~NcclTransport() override {
    member_.driven().leave(*this);
    close();
  }

  [[nodiscard]] int rank() const noexcept override { return member_.rank(); }
  [[nodiscard]] int size() const noexcept override { return member_.size(); }
  [[nodiscard]] int world_rank(int rank) const override { return member_.world_rank(rank); }
  [[nodiscard]] std::string name() const override { return member_.name(); }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override { return member_.deadline(); }

  void run(const CollectiveCall& call) override {
    Started& started = take(call);
    started.on_own_stream = sends_or_receives(call.operation);
    enqueue(started);
    wait(started);
  }
  /// Messages that are started in an exchange are issued at its end, or when one of them is waited for.
  [[nodiscard]] Pending start(const CollectiveCall& call) override {
    Started& started = take(call);
    enqueue(started);
    return Pending(std::shared_ptr<PendingOperation>(this->shared_from_this(), &started));
  }
  [[nodiscard]] std::shared_ptr<Transport> split(const GroupRule& rule, std::string name,
                                                 SourceLocation where) override {
    forming_.where = where;
    member_.admit(forming_, 0);
    HostCommunicator part =
        member_.guarded([&] { return member_.host().split_by(rule, std::move(name), where); });
    if (!part.valid())
      return nullptr;
    return std::make_shared<NcclTransport>(std::move(part), member_.api(), runtime_, stream_,
                                           member_.options());
  }
  [[nodiscard]] bool matches_in_order() const noexcept override { return true; }
  void begin_exchange() override { ++exchanges_; }
  void end_exchange() noexcept override {
    if (--exchanges_ > 0)
      return;
    complete_exchange();
    try {
      progress();
    } catch (const std::exception&) { // the next wait tells
      member_.driven().tell_later(std::current_exception());
    }
  }
  void abort(const std::string& reason) override { member_.end(reason, true); }
  void require_alive(const CollectiveCall& call) override {
    member_.require_open(call, 0);
    member_.look(call, 0);
    watch(true);
  }

  void await_stream(SourceLocation where) override {
    member_.require_open(call_of(Operation::barrier, where), 0);
    runtime_.record(stream_event_, stream_);
    static_cast<void>(await_device([&] { return runtime_.done(stream_event_); }));
  }
  bool drive(bool closely) override {
    if (member_.ended())
      return true;
    progress();
    watch(closely);
    return nothing_on_streams();
  }

private:
  using Started = StartedCall<NcclTransport, Call>;
  friend Started;

  // Called by the handles of started calls.
  [[nodiscard]] bool ready(Call& started) {
    if (member_.ended())
      return true; // wait() throws
    try {
      progress();
      watch(false);
      return issued(started) && runtime_.done(started.done_event);
    } catch (const std::exception&) {
      started.failed = std::current_exception();
      return true;
    }
  }
  [[nodiscard]] bool expire(Call& started, std::chrono::nanoseconds polled) {
    // The host group times out first: it names the missing ranks.
    if (polled <= deadline() + deadline() / 16 || issued(started))
      return false;
    try {
      member_.late(Member::to_be_issued, started.call, started.sequence);
    } catch (const DeadlineExceeded&) {
      started.failed = std::current_exception();
    }
    return true;
  }
  void wait(Call& started) {
    const Release release{*this, started};
    if (started.failed)
      std::rethrow_exception(std::exchange(started.failed, nullptr));
    member_.require_open(started.call, started.sequence);
    complete_exchange();
    if (!issued(started))
      member_.await(
          [&] {
            progress();
            return issued(started);
          },
          Member::to_be_issued, started.call, started.sequence);
    watch(false);
    if (started.on_own_stream)
      runtime_.wait(stream_, started.done_event);
  }
  void abandon(Call& started) noexcept {
    const Release release{*this, started};
    if (!member_.ended())
      member_.end(dropped_sentence(started.call, started.sequence), true);
  }

  /// The handle of a call has been released, normally or by an exception.
  struct Release {
    NcclTransport& transport;
    Call& started;
    ~Release() {
      started.held = false;
      // It is still in a queue if another failure has ended the wait.
      if (started.stage == Call::Stage::enqueued)
        transport.give_back(started);
    }
  };
  /// Recycles a record that is neither held nor monitored.
  void give_back(Call& started) noexcept {
    if (!started.held && !started.watched)
      calls_.give_back(static_cast<Started&>(started));
  }

  /// Rank 0 creates the communicator's identity; all join within the deadline.
  void form() {
    typename Api::UniqueId id{};
    NcclResult made = NcclResult::success;
    if (rank() == 0)
      made = member_.api().unique_id(id);
    // The others must learn of a failure too: it is sent with the identity.
    std::array<std::byte, sizeof(id) + 1> parcel{};
    std::memcpy(parcel.data(), &id, sizeof id);
    parcel.back() = static_cast<std::byte>(static_cast<unsigned char>(made));
    member_.guarded([&] { member_.host().broadcast(parcel, 0, forming_.where); });
    std::memcpy(&id, parcel.data(), sizeof id);
    made = static_cast<NcclResult>(static_cast<int>(parcel.back()));
    member_.check(made, *channel_, "ncclGetUniqueId", forming_, 0);
    member_.check(channel_->open(id, size(), rank(), member_.name()), *channel_, "ncclCommInitRankConfig",
                  forming_, 0);
    member_.await([&] { return completed("ncclCommInitRankConfig", forming_, 0); },
                  "form its NCCL communicator", forming_, 0);
  }

  /// Whether NCCL has completed the last request on the host.
  [[nodiscard]] bool completed(const char* what, const CollectiveCall& call, std::uint64_t sequence) {
    const NcclResult state = channel_->state();
    member_.check(state, *channel_, what, call, sequence);
    return state != NcclResult::in_progress;
  }

  [[nodiscard]] Started& take(const CollectiveCall& call) {
    const bool message = sends_or_receives(call.operation);
    std::uint64_t& last = message ? message_count_ : collective_count_;
    member_.admit(call, last + 1);
    progress();
    watch(false);
    Started& started = calls_.take(*this, runtime_);
    started.begin(call, ++last);
    return started;
  }

  void enqueue(Call& started) {
    if (started.on_own_stream)
      runtime_.record(started.ready_event, stream_);
    if (sends_or_receives(started.call.operation)) {
      agreement_.begin_message(started);
      started.joined = exchanges_ > 0;
    } else {
      complete_exchange();
    }
    queue_.push_back(&started);
    progress();
  }

  /// The exchange at the end of the queue gets no further messages.
  void complete_exchange() noexcept {
    if (!queue_.empty())
      queue_.back()->joined = false;
  }

  [[nodiscard]] static bool issued(const Call& started) { return started.stage == Call::Stage::enqueued; }

  /// Advances every call as far as possible without waiting.
  void progress() {
    for (std::size_t count = next(); count > 0 && advance({queue_.data(), count}); count = next())
      queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(count));
  }
  /// The number of calls at the front of the queue that are issued together; 0 if there may be more of them.
  [[nodiscard]] std::size_t next() const noexcept {
    for (std::size_t i = 0; i < queue_.size(); ++i)
      if (!queue_[i]->joined)
        return i + 1;
    return 0;
  }

  /// @return whether the calls, the first of the queue, are on their stream.
  [[nodiscard]] bool advance(std::span<Call* const> calls) {
    Call& first = *calls.front();
    const bool messages = sends_or_receives(first.call.operation);
    const char* const what = messages ? "a message of NCCL" : "a collective of NCCL";
    Stream& stream = first.on_own_stream ? own_stream_ : stream_;
    if (first.stage == Call::Stage::waiting) {
      for (Call* const each : calls)
        if (!agreement_.reached(*each))
          return false;
      if (!completed(what, first.call, first.sequence))
        return false;
      for (Call* const each : calls) {
        // The packed copies and NCCL's own buffers are used in the order of the calls.
        if (each->on_own_stream)
          runtime_.wait(stream, each->ready_event);
        else if (watch_.oldest() != nullptr)
          runtime_.wait(stream, order_event());
        note_begin(runtime_, stream, each->call.times);
        each->stage = Call::Stage::issuing;
        each->begun = std::chrono::steady_clock::now();
      }
      if (!messages)
        collective_.pack(first.call, stream);
      const NcclResult result = channel_->issue([&](typename Api::Communicator comm) {
        if (!messages)
          return collective_.issue(comm, native_stream(stream));
        NcclResult out = NcclResult::success;
        for (std::size_t i = 0; i < calls.size() && !failed(out); ++i)
          out = collective_.issue_message(calls[i]->call, comm, native_stream(stream));
        return out;
      });
      member_.check(result, *channel_, what, first.call, first.sequence);
    }
    if (!completed(what, first.call, first.sequence))
      return false;
    if (!messages)
      collective_.unpack(stream);
    for (Call* const each : calls) {
      note_end(runtime_, stream, each->call.times);
      runtime_.record(each->done_event, stream);
      each->stage = Call::Stage::enqueued;
      watch_.add(*each);
    }
    return true;
  }

  /// Marks the end of the work that is now on the communicator's stream.
  [[nodiscard]] typename Runtime::Event& order_event() {
    runtime_.record(stream_event_, own_stream_);
    return stream_event_;
  }

  /// Checks the oldest call on the streams. @param closely also queries NCCL and the host group.
  void watch(bool closely) {
    watch_.sweep(runtime_, [this](Call& started) { give_back(started); });
    Call* const oldest = watch_.oldest() != nullptr ? watch_.oldest() : issuing();
    if (oldest == nullptr)
      return;
    member_.check(channel_->state(), *channel_, "NCCL", oldest->call, oldest->sequence);
    // The rank that waits for the actual obstacle knows more, and times out first.
    if (std::chrono::steady_clock::now() - oldest->begun > deadline() + deadline() / 8)
      member_.late(issued(*oldest) ? "be done on the GPU" : Member::to_be_issued, oldest->call,
                   oldest->sequence);
    if (closely)
      member_.look_patiently(oldest->call, oldest->sequence, oldest->begun);
  }
  /// The first call that NCCL is currently enqueuing, or null.
  [[nodiscard]] Call* issuing() const noexcept {
    return queue_.empty() || queue_.front()->stage == Call::Stage::waiting ? nullptr : queue_.front();
  }

  [[nodiscard]] bool nothing_on_streams() const { return watch_.oldest() == nullptr && issuing() == nullptr; }

  /// Shuts down normally if there was no failure: finishes enqueued work within the deadline; otherwise
  /// aborts.
  void close() noexcept {
    const bool unwinding = std::uncaught_exceptions() > 0;
    if (member_.ended() || unwinding) {
      member_.end("it ended while an exception was propagating", false);
      return;
    }
    try {
      const auto idle = [this] { return completed("ncclCommFinalize", forming_, 0); };
      member_.await(idle, "reach its end", forming_, 0);
      member_.check(channel_->finalize(), *channel_, "ncclCommFinalize", forming_, 0);
      member_.await(idle, "reach its end", forming_, 0);
      channel_->destroy();
    } catch (const std::exception& error) { // aborted by now
      std::fprintf(stderr, "shardwright: an NCCL communicator was aborted at its end: %s\n", error.what());
    }
  }

  mutable Member member_;
  Runtime runtime_;
  Stream stream_;     ///< The rank's.
  Stream own_stream_; ///< For started collectives.
  std::unique_ptr<NcclChannel<Api>> channel_;
  NcclAgreement<Api, Runtime> agreement_;
  NcclCollective<Api, Runtime> collective_;
  typename Runtime::Event stream_event_;
  CollectiveCall forming_ = call_of(Operation::split, {});
  RecordPool<Started> calls_;
  std::vector<Call*> queue_; ///< Calls that have not been enqueued yet.
  NcclWatch<Runtime> watch_;
  int exchanges_ = 0; ///< That have begun and not ended.
  std::uint64_t collective_count_ = 0;
  std::uint64_t message_count_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
