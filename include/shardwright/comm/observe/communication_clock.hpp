// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Measures the time of a rank's communication, and how much of it the rank had to wait for. Calls on
/// device memory: device_clock.hpp.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/decorated_transport.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/observe/link_cost.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Sums over the calls of one kind on one rank. For device memory, the rank's stream takes the place
/// of its thread.
struct CommunicationTotals {
  double calls = 0;
  double bytes = 0;           ///< Over the rank's link, as counted by `link_cost`.
  double seconds = 0;         ///< While the data moved: CallTimes of all calls.
  double exposed_seconds = 0; ///< Of these, while the rank's thread waited for the call.
  double waited_seconds =
      0; ///< Of the rank's thread in calls and waits: exposed time, or waiting for other ranks to arrive.

  /// @brief Time in which the data moved while the rank's thread did something else.
  [[nodiscard]] double hidden_seconds() const noexcept { return std::max(0.0, seconds - exposed_seconds); }
  CommunicationTotals& operator+=(const CommunicationTotals& other) noexcept {
    calls += other.calls;
    bytes += other.bytes;
    seconds += other.seconds;
    exposed_seconds += other.exposed_seconds;
    waited_seconds += other.waited_seconds;
    return *this;
  }
};

/// @brief The calls of one operation on all groups of one name, such as all_reduce on "dp".
struct CommunicationKind {
  std::string group;
  Operation operation = Operation::barrier;
  CommunicationTotals totals{};

  /// @brief "dp all_reduce".
  [[nodiscard]] std::string name() const { return group + " " + std::string(name_of(operation)); }
};

/// @brief Accumulates one rank's calls on the communicators that `timed` returns; for one thread at a time.
class CommunicationClock {
public:
  /// @brief A counter that learns of calls later than they are made.
  class Late {
  public:
    /// @brief Counts the calls that have ended. @throws the device's error.
    virtual void collect() = 0;
    /// @brief Discards the calls so far.
    virtual void forget() noexcept = 0;

  protected:
    ~Late() = default;
  };

  /// @param counts whether to count from now on
  explicit CommunicationClock(bool counts = true) : counts_(counts) {}

  /// @brief The kinds that were used since the last restart, in the order of their first use.
  [[nodiscard]] std::vector<CommunicationKind> kinds() const {
    collect();
    std::vector<CommunicationKind> out;
    std::copy_if(kinds_.begin(), kinds_.end(), std::back_inserter(out),
                 [](const CommunicationKind& kind) { return kind.totals.calls > 0; });
    return out;
  }
  /// @brief The sum of all kinds.
  [[nodiscard]] CommunicationTotals total() const {
    collect();
    CommunicationTotals out;
    for (const CommunicationKind& kind : kinds_)
      out += kind.totals;
    return out;
  }
  /// @brief Chooses whether calls that end from now on are counted; for device memory, calls that begin from
  /// now on.
  void count(bool on) noexcept { counts_ = on; }
  [[nodiscard]] bool counts() const noexcept { return counts_; }
  /// @brief Adds a call to a kind.
  void add(CommunicationKind& kind, const CommunicationTotals& call) noexcept {
    if (counts_)
      kind.totals += call;
  }
  /// @brief Resets all sums, for example after the warm-up of a first step.
  void restart() noexcept {
    for (Late* const each : late_)
      each->forget();
    for (CommunicationKind& kind : kinds_)
      kind.totals = {};
  }
  /// @brief Returns the accumulator of a kind, whose address is stable.
  [[nodiscard]] CommunicationKind& kind(std::string_view group, Operation operation) {
    for (CommunicationKind& known : kinds_)
      if (known.operation == operation && known.group == group)
        return known;
    return kinds_.emplace_back(CommunicationKind{std::string(group), operation, {}});
  }

  /// @brief From now on `late` is queried whenever the sums are read, until it is removed.
  void enter(Late& late) { late_.push_back(&late); }
  void leave(Late& late) noexcept { std::erase(late_, &late); }

private:
  void collect() const {
    for (Late* const each : late_)
      each->collect();
  }

  std::deque<CommunicationKind> kinds_;
  std::vector<Late*> late_;
  bool counts_;
};

namespace detail {

/// Adds the calls of a group to a clock.
class TimedCalls {
  using Clock = CallTimes::Clock;

public:
  TimedCalls(std::shared_ptr<CommunicationClock> clock, std::string label)
      : clock_(std::move(clock)), label_(std::move(label)) {}

  class Call {
  public:
    Call(TimedCalls& calls, const HostCommunicator& below, const CollectiveCall& call)
        : clock_(*calls.clock_), asked_(call.times) {
      if (below.size() == 1) // it does not communicate
        return;
      kind_ = &calls.kind_of(call.operation);
      bytes_ = link_cost(call, below.rank(), below.size()).bytes;
    }
    [[nodiscard]] CollectiveCall passed(CollectiveCall call) noexcept {
      if (kind_ != nullptr)
        call.times = &times_;
      return call;
    }
    template <class Wait> void end(Wait wait) {
      const auto begin = Clock::now();
      wait();
      if (kind_ != nullptr)
        add(begin, Clock::now());
    }
    [[nodiscard]] static bool over() noexcept { return true; }

  private:
    void add(Clock::time_point begin, Clock::time_point end) noexcept {
      const auto seconds = [](Clock::time_point from, Clock::time_point to) {
        return std::max(0.0, std::chrono::duration<double>(to - from).count());
      };
      const Clock::time_point moved = times_.begun_at(), done = times_.ended_at();
      clock_.add(*kind_, {1, bytes_, seconds(moved, done),
                          seconds(std::max(begin, moved), std::min(end, done)), seconds(begin, end)});
      if (asked_ != nullptr) {
        asked_->begin(moved);
        asked_->end(done);
      }
    }

    CommunicationClock& clock_;
    CallTimes* asked_;
    CommunicationKind* kind_ = nullptr; ///< Null: not counted.
    double bytes_ = 0;
    CallTimes times_;
  };

  [[nodiscard]] TimedCalls of(std::string part) const { return {clock_, std::move(part)}; }
  [[nodiscard]] GroupClock clock() const { return {clock_, label_}; }

private:
  [[nodiscard]] CommunicationKind& kind_of(Operation operation) {
    CommunicationKind*& known = kinds_[static_cast<std::size_t>(operation)];
    if (known == nullptr)
      known = &clock_->kind(label_, operation);
    return *known;
  }

  std::shared_ptr<CommunicationClock> clock_;
  std::string label_;
  std::array<CommunicationKind*, 1 + static_cast<std::size_t>(Operation::receive)> kinds_{};
};

/// A kind as sent between ranks.
struct PackedKind {
  std::array<char, 48> group{};
  Operation operation{};
  CommunicationTotals totals{};
};

} // namespace detail

/// @brief Decorates a communicator with a clock: every call on it, and on groups split off from it, is added
/// to `clock` under the name of its group.
///
/// If a rank waits late for a call, only the remaining time is exposed; a wait counts only for its own call.
/// Cost: a call reads the clock four times, and a started one allocates one record. A communicator without it
/// reads no clock. Calls that fail are not counted, nor are those of a group of one. Calls on device memory
/// are counted if a target has made its communicator from one with a clock (timed_like).
/// @param label name of this group in the clock, such as all axes of the mesh
[[nodiscard]] inline HostCommunicator
timed(HostCommunicator communicator, std::shared_ptr<CommunicationClock> clock, std::string label = {}) {
  if (!clock)
    return communicator;
  if (label.empty())
    label = communicator.name();
  return HostCommunicator(std::make_shared<detail::ObservedTransport<HostCommunicator, detail::TimedCalls>>(
      std::move(communicator), detail::TimedCalls(std::move(clock), std::move(label))));
}

/// @brief The kinds of all ranks, each with the mean of its totals over the ranks, sorted by exposed time,
/// longest first. Collective; cost: an all_gather of the kinds.
/// @throws the communicator's errors.
[[nodiscard]] inline std::vector<CommunicationKind> mean_communication(const HostCommunicator& ranks,
                                                                       const CommunicationClock& clock) {
  std::vector<detail::PackedKind> own;
  for (const CommunicationKind& kind : clock.kinds()) {
    detail::PackedKind& packed = own.emplace_back();
    kind.group.copy(packed.group.data(), packed.group.size() - 1);
    packed.operation = kind.operation;
    packed.totals = kind.totals;
  }
  CommunicationClock sum;
  for (const std::vector<detail::PackedKind>& rank : all_gather_v(ranks, own))
    for (const detail::PackedKind& packed : rank)
      sum.kind(packed.group.data(), packed.operation).totals += packed.totals;
  std::vector<CommunicationKind> out = sum.kinds();
  for (CommunicationKind& kind : out)
    for (double* number : {&kind.totals.calls, &kind.totals.bytes, &kind.totals.seconds,
                           &kind.totals.exposed_seconds, &kind.totals.waited_seconds})
      *number /= ranks.size();
  std::stable_sort(out.begin(), out.end(), [](const CommunicationKind& a, const CommunicationKind& b) {
    return a.totals.exposed_seconds > b.totals.exposed_seconds;
  });
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
