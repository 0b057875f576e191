// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The checks of a wait that cost more than a poll: failures elsewhere, ranks that have left, rings,
/// the deadline.

#include <shardwright/comm/long_wait.hpp>
#include <shardwright/comm/mpi/group.hpp>
#include <shardwright/comm/wait_graph.hpp>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The checks in the waits of a group's calls, one call after another.
class MpiWaitChecks {
public:
  /// The call that waits.
  struct Call {
    const CollectiveCall& call;
    const MpiCallSite& site;
  };

  explicit MpiWaitChecks(MpiGroup& group) : group_(group) {}

  /// A call begins.
  void begin() noexcept {
    leaver_unseen_ = told_waits_ = recently();
    second_look_ = {};
    ring_watch_ = {};
    late_ = told_ = false;
    group_.world().node().beat(leaver_unseen_);
  }

  /// @param stays Whether the rank remains inside the call; else the program polls.
  /// @param waits_long Whether it has waited for longer than LaunchOptions::notice.
  /// @param add_waits Adds the world ranks for which the call waits to a vector.
  /// @throws the error that ends the call.
  template <class AddWaits>
  void run(const Call& own, bool expired, bool stays, bool waits_long, AddWaits add_waits) {
    MpiWorld& world = group_.world();
    const auto now = std::chrono::steady_clock::now();
    late_ = false;
    world.node().beat(now);
    publish_waits(expired, stays, now, add_waits);
    world.look_around();
    const std::optional<Failure> failure = group_.failure_elsewhere();
    if (failure && failure->kind != Failure::Kind::deadline)
      group_.throw_ended(*failure, own.site);
    if (!failure)
      look_for_leavers(now);
    late_ = true;
    if (failure || expired)
      give_up(own, failure, expired, now);
    if (waits_long)
      look_for_ring(own, now);
    late_ = false;
  }
  /// Whether the call was ended because others did not arrive.
  [[nodiscard]] bool late() const noexcept { return late_; }

private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /// The time of the kernel's last tick, at most milliseconds ago: an eighth of the cost of the exact time.
  [[nodiscard]] static Time recently() noexcept {
#if defined(CLOCK_MONOTONIC_COARSE)
    timespec time{};
    if (::clock_gettime(CLOCK_MONOTONIC_COARSE, &time) == 0)
      return Clock::time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
#endif
    return Clock::now();
  }
  /// Publishes from time to time, to the ranks of this node, the ranks for which this one waits.
  template <class AddWaits> void publish_waits(bool now_or_never, bool stays, Time now, AddWaits& add_waits) {
    if (!now_or_never && now - told_waits_ < look_again)
      return;
    told_waits_ = now;
    waits_.clear();
    add_waits(waits_);
    group_.world().node().publish_waits(waits_, group_.world().waits());
    if (stays)
      group_.world().answer_waits();
  }

  /// World ranks that the call waits for, as last published.
  [[nodiscard]] const std::vector<int>& waited_for() {
    return waits_.empty() ? group_.world().waits() : waits_;
  }
  /// The ranks that keep the call waiting.
  [[nodiscard]] HoldUp hold_up(const Call& own) {
    const MpiWorld& world = group_.world();
    return HoldUpSearch(world.node(), own.site.world_rank, world.options().deadline).follow(waited_for());
  }

  /// Ends a long wait that no rank can end, or prints once for whom this rank waits.
  void look_for_ring(const Call& own, Time now) {
    switch (ring_watch_.look(group_.world().node(), own.site.world_rank, now)) {
    case RingWatch::Verdict::none:
      if (!std::exchange(told_, true))
        print_long_wait(own);
      return;
    case RingWatch::Verdict::young:
      return;
    case RingWatch::Verdict::lasting:
      throw_late(own, ring_watch_.found(), std::chrono::nanoseconds(0));
    }
  }

  /// Prints to stderr the ranks for which the call waits, unless another rank of the group has done so.
  void print_long_wait(const Call& own) {
    MpiWorld& world = group_.world();
    if (!world.node().first_to_notice(mixed(group_.id(), own.site.sequence)))
      return;
    LongWait wait{own.site.world_rank, describe(own.call, own.site.sequence), group_.name(),
                  hold_up(own).ranks};
    wait.whereabouts = world.reports_of(wait.missing);
    wait.waited = world.options().notice;
    wait.deadline = world.options().deadline;
    wait.print();
  }

  /// Throws the error for whatever keeps the call waiting, unless that has to be examined again.
  void give_up(const Call& own, const std::optional<Failure>& failure, bool expired, Time now) {
    HoldUp found = hold_up(own);
    // A peer that waited in vain has already named the culprit: uncertain knowledge adds nothing.
    if (failure && !found.sure && (!expired || found.ring.empty()))
      group_.throw_ended(*failure, own.site);
    const auto verdict = second_look_.look(group_.world().node(), found, now);
    if (verdict == SecondLook::Verdict::not_yet)
      return;
    if (verdict == SecondLook::Verdict::moving && !found.ring.empty())
      found = {waited_for()};
    throw_late(own, found, group_.world().options().deadline);
  }
  [[noreturn]] void throw_late(const Call& own, const HoldUp& found, std::chrono::nanoseconds deadline) {
    const std::string sentence =
        late_sentence(group_.name(), own.call, own.site.sequence, deadline, waited_for(), found, {},
                      [this](int rank) { return group_.world().node().report(rank); });
    group_.end(Failure::Kind::deadline, sentence, true);
    throw DeadlineExceeded(found.ranks, std::string(name_of(own.call.operation)) + ": " + sentence,
                           own.site.context());
  }

  /// A rank that has ended its program will not arrive, but what it sent before may still be in flight.
  void look_for_leavers(Time now) {
    MpiNode& node = group_.world().node();
    const auto has_finished = [&](int rank) {
      return node.state(rank) == RankState::finished && !node.gave_up(rank);
    };
    const std::vector<int>& awaited = waited_for();
    const auto leaver = std::find_if(awaited.begin(), awaited.end(), has_finished);
    if (leaver == awaited.end())
      leaver_unseen_ = now;
    else if (now - leaver_unseen_ > std::chrono::milliseconds(200))
      node.fail_world(*leaver, Failure::Kind::left,
                      "its program returned while other ranks of the group continued; " +
                          node.last_call(*leaver).text());
  }

  static constexpr std::chrono::milliseconds look_again{20};

  MpiGroup& group_;
  Time leaver_unseen_{};
  Time told_waits_{};
  SecondLook second_look_;
  RingWatch ring_watch_;
  bool late_ = false;
  bool told_ = false;      ///< That it waits long.
  std::vector<int> waits_; ///< World ranks, as last determined.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
