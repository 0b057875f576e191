// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The cost of one step: memory, computation, communication, bubble, and the resulting rates.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/pass_costs.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Bytes on the rank that needs the most.
struct MemoryCost {
  double parameters = 0; ///< The copies that compute, gathered ones of ZeRO-3 included.
  double gradients = 0;
  double optimizer = 0;   ///< fp32 parameters and moments.
  double activations = 0; ///< Kept for the backward passes of all microbatches in flight.
  double logits = 0;      ///< Of one microbatch.
  double buffers = 0;     ///< Of communication and of the runtime.

  [[nodiscard]] constexpr double total() const noexcept {
    return parameters + gradients + optimizer + activations + logits + buffers;
  }
};

/// @brief The purposes of collectives.
enum class Traffic : std::uint8_t { tensor, context, expert, pipeline, data };

/// @brief One kind of traffic in one step, on the busiest rank.
struct TrafficCost {
  double bytes = 0;           ///< That a rank sends.
  double seconds = 0;         ///< On the wire.
  double exposed_seconds = 0; ///< Of these, the part that computation does not hide.

  [[nodiscard]] constexpr double hidden_seconds() const noexcept { return seconds - exposed_seconds; }
  constexpr TrafficCost& operator+=(const TrafficCost& other) noexcept {
    bytes += other.bytes;
    seconds += other.seconds;
    exposed_seconds += other.exposed_seconds;
    return *this;
  }
  friend constexpr TrafficCost operator*(double times, const TrafficCost& one) noexcept {
    return {times * one.bytes, times * one.seconds, times * one.exposed_seconds};
  }
};

/// @brief The conventions for counting floating-point operations.
enum class FlopsConvention : std::uint8_t {
  causal,    ///< Half of the scores: what a causal model needs.
  non_causal ///< All of the scores, as most published utilisations count.
};

/// @brief Floating-point operations of one step on all chips.
struct StepFlops {
  double model = 0;
  double recomputed = 0; ///< That recomputation adds.
};

/// @brief Why a configuration cannot run; `none` if it can.
enum class PlanProblem : std::uint8_t {
  none,
  empty_input,            ///< A dimension, batch, extent or bandwidth is not positive.
  chips_differ,           ///< tp * cp * pp * dp is not the number of chips.
  batch_not_divisible,    ///< The sequences do not divide into dp * microbatch.
  heads_not_divisible,    ///< tp does not divide the heads.
  sequence_not_divisible, ///< cp (or tp with sequence parallelism) does not divide the sequence.
  layers_too_few,         ///< There are fewer layers than pipeline stages.
  experts_not_divisible,  ///< ep does not divide the experts or the ranks of a stage.
  shards_not_divisible,   ///< shard_ranks does not divide dp * cp, or the model has experts.
  not_reproducible,       ///< A reproducible run has a tp or cp other than 1, 2, 4 and 8.
  schedule_rule,          ///< The schedule does not allow the number of ranks or microbatches.
  out_of_memory,          ///< A rank needs more than its chip has.
  too_large               ///< A dimension, batch or number of chips is too large for the planner.
};

/// @brief Returns whether a problem means that neither times nor memory can be computed.
[[nodiscard]] constexpr bool is_unusable(PlanProblem problem) noexcept {
  return problem == PlanProblem::empty_input || problem == PlanProblem::too_large;
}

/// @brief Cost of one step of a configuration.
struct StepCost {
  PlanProblem problem = PlanProblem::none; ///< Times are valid unless it `is_unusable`.
  MemoryCost memory{};
  std::array<TrafficCost, 5> traffic{}; ///< By Traffic.
  TrafficCost reduction{}; ///< The part of Traffic::data in each microbatch's backward passes (ZeRO-2).

  double matmul_seconds = 0;      ///< Linear layers, forwards, backwards and recomputation.
  double attention_seconds = 0;   ///< Scores and the weighted sums.
  double elementwise_seconds = 0; ///< Of kernels bound by memory bandwidth.
  double overhead_seconds = 0;    ///< Launches, and other time that grows only with microbatches and layers.
  double optimizer_seconds = 0;
  double imbalance_seconds = 0; ///< The heaviest stage's time above the mean.
  double bubble_seconds = 0;
  double straggler_seconds = 0; ///< Jitter of many chips.
  double step_seconds = 0;      ///< Sum of the above and of the exposed communication.
  double least_seconds = 0;     ///< Interval that holds four of five published runs.
  double most_seconds = 0;

  PassCosts passes{}; ///< Seconds of one microbatch in the mean stage, with its exposed communication.

  double tokens = 0; ///< Of one step.
  double chips = 0;
  std::array<StepFlops, 2> flops{}; ///< By FlopsConvention.
  double peak_flops = 0;            ///< Of one chip, in the precision of the run.

  [[nodiscard]] constexpr const TrafficCost& of(Traffic kind) const noexcept {
    return traffic[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] constexpr const StepFlops& flops_of(FlopsConvention convention) const noexcept {
    return flops[static_cast<std::size_t>(convention)];
  }
  [[nodiscard]] constexpr double exposed_seconds() const noexcept {
    double sum = 0;
    for (const TrafficCost& one : traffic)
      sum += one.exposed_seconds;
    return sum;
  }
  [[nodiscard]] constexpr double tokens_per_second() const noexcept { return tokens / step_seconds; }
  [[nodiscard]] constexpr double tokens_per_second_per_chip() const noexcept {
    return tokens_per_second() / chips;
  }
  /// @brief The same step if it takes this long: the difference goes to uneven stages or, as far as
  /// they have not that much, to the bubble, sends, data parallelism and overhead.
  [[nodiscard]] constexpr StepCost lasting(double seconds) const noexcept {
    StepCost out = *this;
    const double factor = seconds / step_seconds;
    double left = (factor - 1) * (step_seconds - straggler_seconds);
    const auto exposed = [&out](Traffic kind) {
      return &out.traffic[static_cast<std::size_t>(kind)].exposed_seconds;
    };
    for (double* part : {&out.imbalance_seconds, &out.bubble_seconds, exposed(Traffic::pipeline),
                         exposed(Traffic::data), &out.overhead_seconds}) {
      const double now = left + *part > 0 ? left + *part : 0;
      left -= now - *part;
      *part = now;
    }
    for (double StepCost::*time : {&StepCost::straggler_seconds, &StepCost::step_seconds,
                                   &StepCost::least_seconds, &StepCost::most_seconds})
      out.*time *= factor;
    return out;
  }
  /// @brief Model FLOPs utilisation, relative to the peak in the run's precision.
  [[nodiscard]] constexpr double mfu(FlopsConvention convention) const noexcept {
    return flops_of(convention).model / (step_seconds * chips * peak_flops);
  }
  /// @brief Hardware FLOPs utilisation, which includes recomputation.
  [[nodiscard]] constexpr double hfu(FlopsConvention convention) const noexcept {
    const StepFlops& counted = flops_of(convention);
    return (counted.model + counted.recomputed) / (step_seconds * chips * peak_flops);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
