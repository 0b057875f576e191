// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A communicator over a simulated link, which shows on one machine what a run would cost with a given
/// latency and bandwidth.

#include <shardwright/comm/decorated_transport.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/observe/link_cost.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A call's time on a link, and its cost there.
struct TimeOnLink {
  using Clock = CallTimes::Clock;

  CallTimes below{};
  Clock::duration cost{};
  bool outward = true;
  bool inward = true;
  bool placed = false; ///< Whether the times below are known.
  Clock::time_point begin{};
  Clock::time_point end{};
};

/// One rank's link, shared by all of its groups. It serves calls in the order in which all of their ranks
/// have arrived, one after the other in each direction.
class Link {
public:
  using Clock = CallTimes::Clock;

  explicit Link(LinkOptions options) : options_(options) {}

  [[nodiscard]] const LinkOptions& options() const noexcept { return options_; }

  void add(TimeOnLink& use) {
    const std::lock_guard lock(mutex_);
    uses_.push_back(&use);
  }
  void remove(TimeOnLink& use) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(uses_, &use);
  }

  /// Assigns a use whose ranks have arrived its time on the link, after earlier ones.
  void place(TimeOnLink& use) {
    const std::lock_guard lock(mutex_);
    while (!use.placed) {
      TimeOnLink* first = &use;
      for (TimeOnLink* other : uses_)
        if (!other->placed && other->below.ended() && other->below.begun_at() < first->below.begun_at())
          first = other;
      occupy(*first);
    }
  }

private:
  void occupy(TimeOnLink& use) noexcept {
    use.begin = use.below.begun_at();
    if (use.outward)
      use.begin = std::max(use.begin, free_outward_);
    if (use.inward)
      use.begin = std::max(use.begin, free_inward_);
    use.end = use.begin + use.cost;
    if (use.outward)
      free_outward_ = use.end;
    if (use.inward)
      free_inward_ = use.end;
    // The machine itself may be slower than the simulated link.
    use.end = std::max(use.end, use.below.ended_at());
    use.placed = true;
  }

  const LinkOptions options_;
  std::mutex mutex_;
  std::vector<TimeOnLink*> uses_; ///< Begun but not yet waited for.
  Clock::time_point free_outward_{};
  Clock::time_point free_inward_{};
};

/// The calls of a group on a rank's link.
struct LinkedCalls {
  std::shared_ptr<Link> link;

  /// Issued below, and complete when its time on the link is over.
  class Call {
  public:
    Call(LinkedCalls& calls, HostCommunicator& below, const CollectiveCall& call)
        : link_(*calls.link), below_(below), call_(call) {
      const double seconds = link_cost(call, below.rank(), below.size()).seconds(link_.options());
      constexpr double for_ever = 1e8; // years, which a clock can still count
      use_.cost = std::chrono::duration_cast<TimeOnLink::Clock::duration>(
          std::chrono::duration<double>(std::min(seconds, for_ever)));
      use_.outward = call.operation != Operation::receive;
      use_.inward = call.operation != Operation::send;
      link_.add(use_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() { link_.remove(use_); }

    [[nodiscard]] CollectiveCall passed(CollectiveCall call) noexcept {
      call.times = &use_.below;
      return call;
    }
    [[nodiscard]] bool over() {
      if (!use_.below.ended()) // it has failed
        return true;
      link_.place(use_);
      return TimeOnLink::Clock::now() >= use_.end;
    }
    /// Sleeps for the rest of the call's time on the link.
    template <class Wait> void end(Wait wait) {
      wait();
      link_.place(use_);
      const auto limit = TimeOnLink::Clock::now() + below_.deadline();
      std::this_thread::sleep_until(std::min(use_.end, limit));
      if (use_.end > limit)
        give_up();
      if (call_.times != nullptr) {
        call_.times->begin(use_.begin);
        call_.times->end(use_.end);
      }
    }

  private:
    [[noreturn]] void give_up() {
      const std::string sentence =
          std::string(name_of(call_.operation)) +
          ": the simulated link must carry a call within the deadline, but it is busy for longer (give the link more bandwidth, or the communicator a longer deadline)";
      below_.abort(sentence);
      throw DeadlineExceeded(
          {}, sentence,
          {below_.world_rank(), below_.name(), std::string(name_of(call_.operation)), 0, {}, call_.where});
    }

    Link& link_;
    HostCommunicator& below_;
    CollectiveCall call_; ///< For its kind and place; its blocks may be gone once it has started.
    TimeOnLink use_{};
  };

  [[nodiscard]] LinkedCalls of(const std::string&) const { return *this; }
};

} // namespace detail

/// @brief Decorates a communicator with a simulated link: each call ends when a link with this latency and
/// bandwidth would have carried it.
///
/// A call occupies the rank's link for the time of `link_cost`, from when all of its ranks have arrived;
/// calls of all groups queue on the link, sends only in the outward and receives only in the inward
/// direction. Groups that are split off share the link. Started calls proceed while the rank computes. A rank
/// that waits for its link sleeps. A queue on one rank's link delays its peers only through the rank's later
/// calls, not in the same call.
/// @throws as the communicator does; DeadlineExceeded if the link alone takes longer than the deadline.
[[nodiscard]] inline HostCommunicator simulated_link(HostCommunicator communicator,
                                                     const LinkOptions& options) {
  if (!(options.latency_seconds >= 0) || !(options.bytes_per_second >= 0))
    throw InvalidArgument(
        "simulated_link: latency and bandwidth must not be negative (0 means no latency, or unlimited bandwidth)");
  return HostCommunicator(std::make_shared<detail::ObservedTransport<HostCommunicator, detail::LinkedCalls>>(
      std::move(communicator), detail::LinkedCalls{std::make_shared<detail::Link>(options)}));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
