// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The measured timetable of a pipeline, to compare with the planned one, and the costs to plan it
/// with.

#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/stage_placement.hpp>
#include <shardwright/schedule/timetable.hpp>
#include <shardwright/train/pipeline/timeline.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Start of the first pass of any rank, in seconds since the start of the run.
[[nodiscard]] inline double first_pass_seconds(std::span<const RankTimeline> ranks) {
  double first = std::numeric_limits<double>::infinity();
  for (const RankTimeline& events : ranks)
    for (const PipelineEvent& event : events)
      if (event.work == PipelineWork::compute)
        first = std::min(first, event.begin_seconds);
  return first;
}

} // namespace detail

/// @brief The passes of a pipeline's ranks, from the first start on; the gaps are waits.
/// @param unit_seconds the unit of the times, such as 1e-3 for milliseconds
[[nodiscard]] inline Timetable measured_timetable(std::span<const RankTimeline> ranks,
                                                  const StagePlacement& placement, int microbatches,
                                                  double unit_seconds = 1) {
  const double first = detail::first_pass_seconds(ranks);
  Timetable out{"measured", placement, microbatches, {}};
  for (const RankTimeline& events : ranks) {
    out.ranks.emplace_back();
    for (const PipelineEvent& event : events)
      if (event.work == PipelineWork::compute)
        out.ranks.back().push_back({{event.action, {}, false},
                                    (event.begin_seconds - first) / unit_seconds,
                                    (event.end_seconds - first) / unit_seconds});
  }
  return out;
}

/// @brief The mean time of each kind of pass in a timetable; sends cost nothing.
///
/// A B is an I and a W: if the timetable has no separate I or W, each is half a B; if it has both kinds, I
/// and W keep their ratio and are scaled to the total time.
[[nodiscard]] inline PassCosts mean_costs(const Timetable& table) {
  std::array<double, 4> sum{};
  std::array<double, 4> count{};
  for (const auto& steps : table.ranks)
    for (const TimedStep& timed : steps)
      for (int i = 0; i < timed.step.size(); ++i) {
        const auto pass = static_cast<std::size_t>(timed.step[i].pass);
        sum[pass] += (timed.end - timed.start) / timed.step.size();
        count[pass] += 1;
      }
  const auto mean = [&](Pass pass) {
    const auto i = static_cast<std::size_t>(pass);
    return count[i] == 0 ? 0 : sum[i] / count[i];
  };
  PassCosts out{mean(Pass::forward), mean(Pass::input_gradient), mean(Pass::weight_gradient), 0, 0};
  if (out.input_gradient + out.weight_gradient <= 0) {
    out.input_gradient = out.weight_gradient = mean(Pass::backward) / 2;
  } else {
    const auto of = [](Pass pass) { return static_cast<std::size_t>(pass); };
    const double whole = count[of(Pass::backward)];
    const double took =
        sum[of(Pass::backward)] + sum[of(Pass::input_gradient)] + sum[of(Pass::weight_gradient)];
    const double planned = (whole + count[of(Pass::input_gradient)]) * out.input_gradient +
                           (whole + count[of(Pass::weight_gradient)]) * out.weight_gradient;
    out.input_gradient *= took / planned;
    out.weight_gradient *= took / planned;
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
