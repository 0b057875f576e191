// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The timeline of a pipeline's ranks in a run.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/schedule/action.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The kinds of work that take a rank's time.
enum class PipelineWork : std::uint8_t {
  compute,    ///< The action itself.
  wait_input, ///< Waiting for an action's input from another rank.
  wait_send,  ///< Waiting for a free slot to send an action's result, or for the last sends.
  reduction,  ///< Gradient reduction, overlapped with the passes.
  gather,     ///< Gather of weights, overlapped with the passes.
};

/// @brief One span of a rank's time, in seconds since the common start of the run.
struct PipelineEvent {
  PipelineWork work = PipelineWork::compute;
  Action action{};
  double begin_seconds = 0;
  double end_seconds = 0;
  std::int64_t bytes = 0; ///< Of a reduction or a gather.
};

/// @brief A rank's events in order; a wait that ends immediately leaves none.
using RankTimeline = std::vector<PipelineEvent>;

namespace detail {

/// Records the times of one rank; does nothing if no timeline was requested.
class TimelineRecorder {
  using Clock = std::chrono::steady_clock;

public:
  TimelineRecorder(bool active, std::size_t events) : active_(active) {
    if (active)
      events_.reserve(events);
  }

  /// Records the time until it is destroyed.
  class Span {
  public:
    Span(TimelineRecorder& recorder, PipelineWork work, const Action& action)
        : recorder_(recorder), event_{work, action, recorder.now(), 0} {}
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

  private:
    TimelineRecorder& recorder_;
    PipelineEvent event_;
  };

  [[nodiscard]] bool active() const noexcept { return active_; }
  [[nodiscard]] Span span(PipelineWork work, const Action& action) { return {*this, work, action}; }
  [[nodiscard]] const RankTimeline& events() const noexcept { return events_; }
  /// The clock value that counts as 0.
  [[nodiscard]] Clock::time_point origin() const noexcept { return origin_; }

  /// Discards the events and starts at 0, together with the other ranks.
  ///
  /// Collective if active. No rank leaves a barrier before the last one has entered it. If the clock values
  /// agree with that, the ranks share a clock (threads, and processes on one machine), and 0 is the last
  /// entry for all of them. Otherwise 0 is the moment when each rank leaves the barrier.
  void restart(HostCommunicator& ranks);

private:
  static constexpr Clock::duration one_tick{1};

  [[nodiscard]] double now() const {
    return active_ ? std::chrono::duration<double>(Clock::now() - origin_).count() : 0;
  }

  bool active_;
  Clock::time_point origin_{};
  std::vector<std::int64_t> moments_;
  RankTimeline events_;
};

} // namespace detail

/// @brief The timelines of all ranks, in rank order, on every rank. Collective; cost: an all_gather
/// of them.
[[nodiscard]] inline std::vector<RankTimeline> gather_timelines(const HostCommunicator& ranks,
                                                                const RankTimeline& own) {
  return all_gather_v(ranks, own);
}

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void detail::TimelineRecorder::restart(HostCommunicator& ranks) {
  if (!active_)
    return;
  events_.clear();
  const auto reading = [] { return static_cast<std::int64_t>(Clock::now().time_since_epoch() / one_tick); };
  std::array<std::int64_t, 2> own{reading(), 0};
  ranks.barrier();
  own[1] = reading();
  moments_.resize(2 * static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(own, moments_);
  std::int64_t last_entry = own[0];
  std::int64_t first_exit = own[1];
  for (std::size_t i = 0; i < moments_.size(); i += 2) {
    last_entry = std::max(last_entry, moments_[i]);
    first_exit = std::min(first_exit, moments_[i + 1]);
  }
  origin_ = Clock::time_point((last_entry <= first_exit ? last_entry : own[1]) * one_tick);
}

SHARDWRIGHT_INLINE detail::TimelineRecorder::Span::~Span() {
  if (!recorder_.active_)
    return;
  event_.end_seconds = recorder_.now();
  recorder_.events_.push_back(event_);
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
