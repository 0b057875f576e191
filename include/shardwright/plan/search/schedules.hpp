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
#include <shardwright/schedule/stage_placement.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The schedules that a bound applies to: whether they overlap a forward with a backward pass.
enum class ScheduleKind : std::uint8_t { unpaired, paired, any };

/// Schedules with their numbers of chunks.
struct SearchSchedules {
  struct One {
    PlanSchedule schedule = PlanSchedule::one_f_one_b;
    int chunks = 1;
  };
  std::array<One, plan_schedule_count + 2 * most_chunks> plans{};
  int count = 0;

  /// Those that a space, and the numbers of a plan with any of these microbatches, do not rule out.
  constexpr void find(const ModelSpec& model, const RunSpec& run, const SearchSpace& space,
                      PlanConfiguration plan, std::span<const int> batches) {
    count = 0;
    const int layers = model.stacked_layers(), fixed = space.chunks.value_or(0);
    if (plan.pp == 1) {
      if (fixed > 1)
        return;
      plans[static_cast<std::size_t>(count++)] = {PlanSchedule::one_f_one_b, 1};
      return;
    }
    const auto legal = [&](int batch) {
      plan.microbatch = batch;
      return rule_of(plan.schedule, plan.pp, static_cast<int>(microbatches_of(run, plan))).holds();
    };
    for (int number = 0; number < plan_schedule_count; ++number) {
      plan.schedule = static_cast<PlanSchedule>(number);
      const bool interleaved = takes_chunks(plan.schedule);
      if ((space.schedule && *space.schedule != plan.schedule) || (fixed > 0 && interleaved != (fixed > 1)) ||
          !std::any_of(batches.begin(), batches.end(), legal))
        continue;
      for (int chunks = interleaved ? 2 : 1; chunks <= (interleaved ? most_chunks : 1); ++chunks)
        if (!has_layers_for(plan.schedule, plan.pp, chunks, layers))
          break;
        else if (fixed > 0 ? chunks == fixed : tries_chunks(layers, plan.pp, chunks))
          plans[static_cast<std::size_t>(count++)] = {plan.schedule, chunks};
    }
  }

  [[nodiscard]] constexpr bool has(const PlanConfiguration& plan, ScheduleKind kind) const {
    bool found = false;
    for_each(plan, kind, [&found](const PlanConfiguration&) { found = true; });
    return found;
  }

  /// Calls `function(plan)` for each schedule of a kind.
  template <class Function>
  constexpr void for_each(PlanConfiguration plan, ScheduleKind kind, const Function& function) const {
    for (int i = 0; i < count; ++i) {
      plan.schedule = plans[static_cast<std::size_t>(i)].schedule;
      plan.chunks = plans[static_cast<std::size_t>(i)].chunks;
      if (kind == ScheduleKind::any || pairs_passes(plan) == (kind == ScheduleKind::paired))
        function(plan);
    }
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
