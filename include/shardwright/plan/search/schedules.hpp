// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The schedules that a search may choose from.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/pipeline_shape.hpp>
#include <shardwright/plan/cost/step_times.hpp>
#include <shardwright/plan/cost/traffic.hpp>
#include <shardwright/plan/search/space.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Some of the schedules of a search, by their places in its list.
using ScheduleSet = std::uint64_t;

/// Schedules with their numbers of chunks.
struct SearchSchedules {
  struct One {
    PlanSchedule schedule = PlanSchedule::one_f_one_b;
    int chunks = 1;
  };
  static constexpr std::size_t most = plan_schedule_count + 2 * most_chunks;
  static_assert(most <= 64, "a ScheduleSet has a bit for each");
  std::array<One, most> plans{};
  int count = 0;
  ScheduleSet paired = 0; ///< Those that overlap a forward with a backward pass.

  /// Those that a space, and the numbers of a plan, do not rule out, whatever its microbatch.
  constexpr void find(const ModelSpec& model, const SearchSpace& space, PlanConfiguration plan) {
    count = 0;
    paired = 0;
    const int layers = model.stacked_layers(), fixed = space.chunks.value_or(0);
    const auto push = [&](PlanSchedule schedule, int chunks) {
      plan.schedule = schedule;
      paired |= ScheduleSet{pairs_passes(plan)} << count;
      plans[static_cast<std::size_t>(count++)] = {schedule, chunks};
    };
    if (plan.pp == 1) {
      if (fixed <= 1)
        push(PlanSchedule::one_f_one_b, 1);
      return;
    }
    for (int number = 0; number < plan_schedule_count; ++number) {
      const auto schedule = static_cast<PlanSchedule>(number);
      const bool interleaved = takes_chunks(schedule);
      if ((space.schedule && *space.schedule != schedule) || (fixed > 0 && interleaved != (fixed > 1)))
        continue;
      for (int chunks = interleaved ? 2 : 1; chunks <= (interleaved ? most_chunks : 1); ++chunks)
        if (!has_layers_for(schedule, plan.pp, chunks, layers))
          break;
        else if (fixed > 0 ? chunks == fixed : tries_chunks(layers, plan.pp, chunks))
          push(schedule, chunks);
    }
  }

  [[nodiscard]] constexpr ScheduleSet all() const noexcept { return (ScheduleSet{1} << count) - 1; }

  /// Calls `function(plan, place)` for each schedule of a set.
  template <class Function>
  constexpr void for_each(PlanConfiguration plan, ScheduleSet of, const Function& function) const {
    for (; of != 0; of &= of - 1) {
      const int place = std::countr_zero(of);
      plan.schedule = plans[static_cast<std::size_t>(place)].schedule;
      plan.chunks = plans[static_cast<std::size_t>(place)].chunks;
      function(plan, place);
    }
  }

  /// Those of a set that allow a plan's number of microbatches.
  [[nodiscard]] constexpr ScheduleSet legal(const RunSpec& run, const PlanConfiguration& plan,
                                            ScheduleSet of) const {
    const auto microbatches = static_cast<int>(microbatches_of(run, plan));
    ScheduleSet out = of;
    for_each(plan, of, [&](const PlanConfiguration& one, int place) {
      if (one.pp > 1 && !rule_of(one.schedule, one.pp, microbatches).holds())
        out &= ~(ScheduleSet{1} << place);
    });
    return out;
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
