// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The time of a simulated rank: sums by activity, and its timeline on request.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/simulate/simulation.hpp>
#include <shardwright/plan/simulate/step_program.hpp>
#include <shardwright/schedule/action.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Records what one rank of a class spends its time on. It works or waits from `begin` until `pass`.
class RankRecord {
public:
  /// @param timeline whether spans are kept, not only their sums
  RankRecord(const RankClass& of, bool timeline) : result_(of), timeline_(timeline) {}

  /// The rank works or waits, from now on or since an earlier call.
  void begin(double now) { since_ = since_ < 0 ? now : since_; }

  /// Records the work or the wait since then, if any, with or without a step to which it belongs. The rank
  /// waited for its peers until `begun`, when the operation began that it takes part in.
  void pass(Activity activity, double now, const Step* step, double begun = 0) {
    if (since_ >= 0) {
      const double joined = std::clamp(begun, since_, now);
      spend(Activity::wait_peers, since_, joined, nullptr);
      spend(activity, joined, now, step);
    }
    since_ = -1;
  }

  /// Records what overlapped it, in its timeline only.
  void pass_beside(Activity activity, double begin, double end, const Step* step) {
    if (timeline_ && end > begin)
      result_.timeline.push_back(span_of(activity, begin, end, step, true));
  }

  void end(double now) { result_.end = now; }
  [[nodiscard]] const RankClass& result() const { return result_; }
  [[nodiscard]] RankClass take() { return std::move(result_); }

private:
  [[nodiscard]] static ActivitySpan span_of(Activity activity, double begin, double end, const Step* step,
                                            bool beside) {
    return {activity, step != nullptr ? *step : Step{}, step != nullptr, beside, begin, end};
  }

  void spend(Activity activity, double begin, double end, const Step* step) {
    if (end <= begin)
      return;
    result_.seconds[static_cast<std::size_t>(activity)] += end - begin;
    if (!timeline_)
      return;
    std::vector<ActivitySpan>& spans = result_.timeline;
    const ActivitySpan span = span_of(activity, begin, end, step, false);
    // A pass may be recorded in parts, with whatever overlaps it in between.
    ActivitySpan* const last = last_ < spans.size() ? &spans[last_] : nullptr;
    if (last != nullptr && last->activity == activity && last->end == begin &&
        last->has_step == span.has_step && last->step == span.step) {
      last->end = end;
      return;
    }
    last_ = spans.size();
    spans.push_back(span);
  }

  RankClass result_;
  bool timeline_;
  double since_ = -1;           ///< Negative where it neither works nor waits.
  std::size_t last_ = SIZE_MAX; ///< The last span of its own work.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
