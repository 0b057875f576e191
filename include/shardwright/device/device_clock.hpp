// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Times calls on device memory for a CommunicationClock: how long they took on the device, and how
/// long the rank's stream waited for them.
///
/// Times come from reusable timed events, which are read long after the device has passed them: neither host
/// nor device waits. A host function in a stream would give the same times, but would stall the stream until
/// the host has run it, some microseconds twice in each call.

#include <shardwright/comm/decorated_transport.hpp>
#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/observe/communication_clock.hpp>
#include <shardwright/comm/observe/link_cost.hpp>
#include <shardwright/device/runtime.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <PeerRuntime Runtime>
class TimedDeviceTransport final : public DecoratedTransport<DeviceCommunicator>,
                                   public std::enable_shared_from_this<TimedDeviceTransport<Runtime>>,
                                   private CommunicationClock::Late {
  using Stream = typename Runtime::Stream;

public:
  TimedDeviceTransport(DeviceCommunicator below, Runtime runtime, Stream stream, GroupClock clock)
      : DecoratedTransport(std::move(below)), runtime_(std::move(runtime)), stream_(std::move(stream)),
        clock_(std::move(clock)), alone_(size() == 1) {
    clock_.clock->enter(*this);
  }
  ~TimedDeviceTransport() override { clock_.clock->leave(*this); }

  void run(const CollectiveCall& call) override {
    if (alone_ || !clock_.clock->counts())
      return this->below().run(call);
    Record& record = take(call);
    runtime_.record(record.times.reached, stream_);
    this->below().run(with(call, record));
    count_later(record);
  }
  [[nodiscard]] Pending start(const CollectiveCall& call) override {
    if (alone_ || !clock_.clock->counts())
      return this->below().start(call);
    Record& record = take(call);
    record.pending = this->below().start(with(call, record));
    return Pending(std::shared_ptr<PendingOperation>(this->shared_from_this(), &record));
  }
  [[nodiscard]] GroupClock clock() const override { return clock_; }

private:
  /// A call, from its start until it is counted. A failed call's record is not reused, since its events may
  /// still be recorded.
  struct Record final : PendingOperation {
    explicit Record(TimedDeviceTransport& of) : owner(of), times(of.runtime_) {}
    [[nodiscard]] bool ready() override { return pending.ready(); }
    void wait() override {
      owner.runtime_.record(times.reached, owner.stream_);
      pending.wait();
      owner.count_later(*this);
    }
    void abandon() noexcept override { pending = Pending(); }

    TimedDeviceTransport& owner;
    MarkedTimes<Runtime> times;
    CommunicationKind* kind = nullptr; ///< Null: no longer counted.
    double bytes = 0;
    Pending pending;
    Record* next = nullptr;
  };

  [[nodiscard]] static CollectiveCall with(CollectiveCall call, Record& record) noexcept {
    call.times = &record.times;
    return call;
  }
  [[nodiscard]] Record& take(const CollectiveCall& call) {
    collect();
    if (free_ == nullptr)
      free_ = records_.emplace_back(std::make_unique<Record>(*this)).get();
    Record& record = *free_;
    free_ = record.next;
    record.next = nullptr;
    record.kind = &clock_.clock->kind(clock_.label, call.operation);
    record.bytes = link_cost(call, rank(), size()).bytes;
    record.times.asked = call.times;
    record.times.local = false;
    return record;
  }
  /// The rank's stream now waits for the call.
  void count_later(Record& record) {
    runtime_.record(record.times.passed, stream_);
    (last_ != nullptr ? last_->next : first_) = &record;
    last_ = &record;
  }

  /// Counts the calls that the rank's stream has passed.
  void collect() override {
    while (first_ != nullptr && runtime_.done(first_->times.passed)) {
      Record& record = *first_;
      if (record.kind != nullptr)
        record.kind->totals += totals_of(record);
      first_ = record.next;
      if (first_ == nullptr)
        last_ = nullptr;
      record.next = free_;
      free_ = &record;
    }
  }
  void forget() noexcept override {
    for (const auto& record : records_)
      record->kind = nullptr;
  }
  /// For a message that another device moves, only the waiting time is known.
  [[nodiscard]] CommunicationTotals totals_of(Record& record) {
    MarkedTimes<Runtime>& times = record.times;
    const double waited = runtime_.seconds(times.reached, times.passed);
    if (!times.local)
      return {1, record.bytes, waited, waited, waited};
    const double seconds = runtime_.seconds(times.moves, times.moved);
    const double exposed = std::clamp(runtime_.seconds(times.reached, times.moved), 0.0, seconds);
    return {1, record.bytes, seconds, exposed, waited};
  }

  [[nodiscard]] std::shared_ptr<Transport> around(DeviceCommunicator part) const override {
    GroupClock clock{clock_.clock, part.name()};
    return std::make_shared<TimedDeviceTransport>(std::move(part), runtime_, stream_, std::move(clock));
  }

  Runtime runtime_;
  Stream stream_;
  GroupClock clock_;
  bool alone_;
  std::vector<std::unique_ptr<Record>> records_;
  Record* free_ = nullptr;
  Record* first_ = nullptr; ///< Of the calls to be counted, in the order of the rank's stream.
  Record* last_ = nullptr;
};

} // namespace detail

/// @brief Decorates the communicator that a target has made from a host group with the clock of that group,
/// if it has one (see timed()), so that its calls are added to the clock.
///
/// Seconds are device time: `exposed_seconds` are those in which data moved while the rank's stream waited
/// for it. A call is counted after the device has passed it, when the clock is read or the next call is made.
/// Cost: four events in each call while the clock counts; nothing without a clock.
template <PeerRuntime Runtime>
[[nodiscard]] DeviceCommunicator timed_like(const HostCommunicator& group, DeviceCommunicator communicator,
                                            Runtime runtime, typename Runtime::Stream stream) {
  GroupClock clock = group.clock();
  if (!clock.clock)
    return communicator;
  return DeviceCommunicator(std::make_shared<detail::TimedDeviceTransport<Runtime>>(
      std::move(communicator), std::move(runtime), std::move(stream), std::move(clock)));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
