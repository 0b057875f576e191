// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The times of all passes on every rank of a pipeline, planned by the proof or measured in a run.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/stage_placement.hpp>
#include <shardwright/schedule/text/explain.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A step of a rank and its times.
struct TimedStep {
  Step step{};
  double start = 0;
  double end = 0;
};

/// @brief The number of microbatches (of a chunk) that a rank keeps from a given time on.
struct KeptFrom {
  double time = 0; ///< In the unit of the costs.
  int count = 0;
};

/// @brief The steps of all ranks with their times, in any unit, from 0 on.
struct Timetable {
  std::string label; ///< Such as "planned".
  StagePlacement placement{};
  int microbatches = 0;
  std::vector<std::vector<TimedStep>> ranks; ///< Each sorted by time.

  /// @brief End of the last step.
  [[nodiscard]] double makespan() const {
    double last = 0;
    for (const std::vector<TimedStep>& steps : ranks)
      last = std::max(last, steps.empty() ? 0 : steps.back().end);
    return last;
  }
  /// @brief Time that a rank spends in steps.
  [[nodiscard]] double busy(int rank) const {
    double sum = 0;
    for (const TimedStep& timed : steps(rank))
      sum += timed.end - timed.start;
    return sum;
  }
  /// @brief Makespan less the busy time, of the rank that idles most.
  [[nodiscard]] double bubble() const {
    double least = ranks.empty() ? 0 : busy(0);
    for (int rank = 1; rank < static_cast<int>(ranks.size()); ++rank)
      least = std::min(least, busy(rank));
    return makespan() - least;
  }
  [[nodiscard]] const std::vector<TimedStep>& steps(int rank) const {
    return ranks[static_cast<std::size_t>(rank)];
  }

  /// @brief Returns the microbatches that a rank keeps over time, from 0 on. Each counts from the start of
  /// its F to the end of its B or W.
  [[nodiscard]] std::vector<KeptFrom> kept(int rank) const {
    std::vector<KeptFrom> curve{{0, 0}}; // one point for every time at which the count changes
    const auto change = [&curve](double time, int by) {
      if (by != 0 && curve.back().time < time)
        curve.push_back({time, curve.back().count});
      curve.back().count += by;
      if (curve.size() > 1 && curve.back().count == curve[curve.size() - 2].count)
        curve.pop_back();
    };
    for (const TimedStep& timed : steps(rank)) {
      int begun = 0;
      int ended = 0;
      for (int i = 0; i < timed.step.size(); ++i) {
        begun += timed.step[i].pass == Pass::forward ? 1 : 0;
        ended += makes_weight_gradient(timed.step[i].pass) ? 1 : 0;
      }
      change(timed.start, begun);
      change(timed.end, -ended);
    }
    return curve;
  }
  /// @brief "chunks" if a microbatch passes a rank several times and each pass counts, else "microbatches".
  [[nodiscard]] std::string kept_unit() const {
    return placement.chunks > 1 && placement.order != StageOrder::bidirectional ? "chunks" : "microbatches";
  }
  /// @brief The peak of the microbatches that a rank keeps.
  [[nodiscard]] int peak(int rank) const {
    int most = 0;
    for (const KeptFrom& point : kept(rank))
      most = std::max(most, point.count);
    return most;
  }
};

/// @brief The times of a schedule's steps according to its proof.
/// @throws InvalidArgument if the schedule does not hold, naming what is missing or which ranks wait for one
/// another.
[[nodiscard]] inline Timetable planned_timetable(const Schedule& schedule, const PassCosts& costs = {}) {
  Timetable out{"planned", schedule.placement(), schedule.microbatches(), {}};
  out.ranks.resize(static_cast<std::size_t>(schedule.ranks()));
  const Proof proof = prove(schedule, costs, schedule.window(), {},
                            [&out](int rank, const Step& step, double start, double end) {
                              out.ranks[static_cast<std::size_t>(rank)].push_back({step, start, end});
                            });
  if (!proof.holds())
    static_cast<void>(require_proof(schedule, costs)); // says why
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
