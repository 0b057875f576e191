// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The schedule of a plan, with the time of every pass from its cost.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/pipeline_shape.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/run.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/timetable.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The schedule that a plan names, for the microbatches of a run.
/// @throws InvalidArgument if the schedule does not allow their number.
[[nodiscard]] inline Schedule schedule_of(const PlanConfiguration& plan, const RunSpec& run) {
  return make_schedule(schedule_name(plan.schedule), plan.pp, static_cast<int>(microbatches_of(run, plan)),
                       takes_chunks(plan.schedule) ? plan.chunks : 2);
}

/// @brief Returns the timetable of one pipeline in seconds. All stages take the mean stage's time, and sends
/// take no time.
///
/// The makespan equals the cost's passes plus its bubble, provided that input gradients take at least as long
/// as forward passes, and forward passes as weight gradients.
[[nodiscard]] inline Timetable plan_timetable(const PlanConfiguration& plan, const RunSpec& run,
                                              const StepCost& cost) {
  const double chunks = chunks_of(plan.schedule, plan.chunks);
  return planned_timetable(schedule_of(plan, run),
                           {cost.passes.forward / chunks, cost.passes.input_gradient / chunks,
                            cost.passes.weight_gradient / chunks});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
