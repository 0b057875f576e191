// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Bubble, memory and exposed sends of every schedule in closed form, derived from proofs.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/run.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/dual_pipe_v.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/schedule_rule.hpp>

#include <algorithm>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The idle time, activations and sends that a schedule adds to the passes of its ranks.
struct PipelineShape {
  double bubble = 0; ///< Idle time of the rank that idles most, in the costs' unit, without sends.
  double kept = 1;   ///< Microbatches whose activations the fullest rank keeps, of all its layers.
  double hops = 0;   ///< Sends that the makespan waits for; at least as many as the proof has.
};

namespace detail {

/// Returns whether some weight gradients are separate passes, which fill idle time.
[[nodiscard]] constexpr bool fills_with_weights(PlanSchedule schedule) noexcept {
  return schedule >= PlanSchedule::zb_h1;
}
/// Returns whether all weight gradients are separate passes.
[[nodiscard]] constexpr bool splits_backward(PlanSchedule schedule) noexcept {
  return fills_with_weights(schedule) && schedule <= PlanSchedule::zb_v;
}

} // namespace detail

/// @brief Microbatches of a step on every data-parallel rank.
[[nodiscard]] constexpr double microbatches_of(const RunSpec& run, const PlanConfiguration& plan) noexcept {
  return std::max(1.0, static_cast<double>(run.sequences) / (static_cast<double>(plan.dp) * plan.microbatch));
}

/// @brief Stages per rank; V-shaped and bidirectional schedules have two.
[[nodiscard]] constexpr int chunks_of(PlanSchedule schedule, int chunks) noexcept {
  return takes_chunks(schedule)                                                    ? chunks
         : schedule == PlanSchedule::zb_v || schedule == PlanSchedule::dual_pipe_v ? 2
                                                                                   : 1;
}

/// @brief Returns whether there are layers for all stages. In an interleaved schedule, whose stages may be
/// single layers, the embedding and the output matrix may be stages of their own, as in Megatron-LM.
[[nodiscard]] constexpr bool has_layers_for(PlanSchedule schedule, int ranks, int chunks,
                                            int layers) noexcept {
  return layers >= ranks && std::int64_t{layers} + (takes_chunks(schedule) ? 2 : 0) >=
                                std::int64_t{ranks} * chunks_of(schedule, chunks);
}

/// @brief The rule of the schedule that these numbers break, if any.
[[nodiscard]] constexpr ScheduleRule rule_of(PlanSchedule schedule, int ranks, int microbatches) {
  switch (schedule) {
  case PlanSchedule::interleaved:
  case PlanSchedule::interleaved_zb: // the same
    return schedule_rule<Interleaved<2>>(ranks, microbatches);
  case PlanSchedule::dual_pipe:
    return schedule_rule<DualPipe>(ranks, microbatches);
  case PlanSchedule::dual_pipe_v:
    return schedule_rule<DualPipeV>(ranks, microbatches);
  default:
    return {};
  }
}

/// @brief The result of `prove` for a schedule, in a few operations instead of a simulation.
///
/// The formulas were derived from proofs; the tests prove every schedule again for many numbers of ranks and
/// microbatches. They are exact for input_gradient >= forward >= weight_gradient, which recomputation and
/// attention (it has no weights) ensure, without sends; `hops` bounds what a send of a fraction of a pass
/// adds.
/// @param costs of one microbatch through all layers of a rank, whatever the number of chunks.
[[nodiscard]] constexpr PipelineShape pipeline_shape(PlanSchedule schedule, int ranks, int microbatches,
                                                     int chunks, const PassCosts& costs) noexcept {
  if (ranks <= 1)
    return {};
  const double p = ranks, m = microbatches, around = p - 1;
  const double filled = std::min(1.0, (m - 1) / p); // the critical path turns back no more often
  const double f = costs.forward, i = costs.input_gradient, w = costs.weight_gradient;
  // Of the schedules with chunks.
  const double v = chunks, group = microbatches / std::max(1, microbatches / ranks);
  const double short_of_ranks = std::max(0.0, p - m);
  switch (schedule) {
  case PlanSchedule::gpipe:
    return {around * (f + i + w), m, 2 * around};
  case PlanSchedule::one_f_one_b:
    return {around * (f + i + w), std::min(p, m), std::max(2 * around, 2 * around * m / p + 2 * (p - 1))};
  case PlanSchedule::interleaved:
    return {(around + (v - 1) * short_of_ranks) * (f + i + w) / v,
            std::min(2 * around + (v - 1) * group + 1, m * v) / v, 2 * (p * v - 1)};
  case PlanSchedule::interleaved_zb:
    return {((around + (v - 1) * short_of_ranks) * (f + i) - (std::min(p, m) - 1) * w -
             (v - 1) * std::min(m * w, short_of_ranks * i)) /
                v,
            std::min(p + (v - 1) * group, m * v) / v,
            m < p ? 2 * (p * v - 1) + 2 * (m - 1) : 4 * around + (group > p ? 0 : (v - 1) * p)};
  case PlanSchedule::zb_h1:
    return {around * (f + i) - (std::min(p, m) - 1) * w, std::min(p, m), 2 * around * (1 + filled)};
  case PlanSchedule::zb_h2: {
    const int counted = std::min(microbatches, 2 * ranks - 1);
    return {around * (f + i) - counted / 2 * w - (counted - 1) / 2 * std::min(i - w, w),
            static_cast<double>(counted), 2 * around};
  }
  case PlanSchedule::zb_v: { // f, i, w of a rank are those of two chunks
    const double kept = std::min(p, m);
    if (m <= p)
      return {around * (f + i) - f * (m - 1), kept, 5 * around};
    const double missing = std::max(0.0, 2 * p - 1 - m);
    return {std::max((around * i + missing * (i - w)) / 2, around * (i - w) + missing * w), kept, 5 * around};
  }
  case PlanSchedule::dual_pipe: {
    const double half = p / 2;
    return {(half - 1) * (2 * f + i - w) + std::max(0.0, (i - f) * half - i), p + 1, around * m / p + 2 * p};
  }
  case PlanSchedule::dual_pipe_v:
    return {(around * (2 * f + i - w) + std::max(0.0, (i - f) * p - i)) / 2, p + 0.5,
            2 * around * m / p + 4 * p};
  }
  return {};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
