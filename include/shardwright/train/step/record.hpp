// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The results of a finished step: numbers on a host, and a record in device memory that kernels read.

#include <shardwright/core/error.hpp>
#include <shardwright/tensor/checks/id_faults.hpp>
#include <shardwright/tensor/memory/device_value.hpp>
#include <shardwright/train/step/loss.hpp>
#include <shardwright/train/step/loss_scale.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The results of a finished step, the same on every rank.
struct GradientSummary {
  MeanLoss loss;            ///< Sum of token losses over the global number of tokens.
  std::int64_t tokens = 0;  ///< Valid tokens of the global batch.
  double gradient_norm = 0; ///< Norm of the gradient of the mean loss, every element counted once.
  GradientScale scale{1};   ///< The gradients are those of the scaled, summed loss; this factor converts them
                            ///< to those of the mean.

  bool take = false;                 ///< Whether an optimizer on a device takes the step.
  bool overflowed = false;           ///< Whether a DynamicLossScale tries a smaller scale instead.
  bool halted = false;               ///< Whether a StepGuard ends the run at this step, or has before.
  bool unused = false;               ///< Instead of padding: kernels copy the bytes of whole words.
  std::int32_t unknown_ids = 0;      ///< Ranks of a device that have met a token id beyond the vocabulary.
  std::int64_t skipped_in_a_row = 0; ///< Steps that a StepGuard has rejected, up to this one.

  /// @brief Returns whether loss and gradients are finite numbers; false without tokens.
  [[nodiscard]] SHARDWRIGHT_FUNCTION bool finite() const {
    // x - x is 0 only for a finite number.
    return loss.value - loss.value == 0 && gradient_norm - gradient_norm == 0;
  }
  /// @brief Returns itself, like DeviceSummary::read on a device.
  [[nodiscard]] const GradientSummary& read() const noexcept { return *this; }
};
static_assert(sizeof(GradientSummary) == sizeof(MeanLoss) + sizeof(GradientScale) + 3 * sizeof(double) +
                                             4 * sizeof(bool) + sizeof(std::int32_t),
              "no byte is padding, which nothing would write");

namespace detail {

/// The results of a step from its sums over all ranks: token losses, tokens, squares of the gradient of the
/// scaled, summed loss, and ranks with unknown ids.
[[nodiscard]] SHARDWRIGHT_FUNCTION inline GradientSummary summarize(const double* totals,
                                                                    double loss_factor) {
  GradientSummary step;
  step.loss.value = totals[0] / totals[1];
  step.tokens = static_cast<std::int64_t>(totals[1]);
  step.scale = GradientScale(step.tokens, loss_factor);
  step.gradient_norm = std::sqrt(totals[2]) * step.scale.factor();
  step.unknown_ids = static_cast<std::int32_t>(totals[3]);
  step.take = step.unknown_ids == 0 && step.finite();
  return step;
}

/// Applies a rule to a step and the rule's own state, in the memory of both.
template <class Rule, class State> struct ApplyToStep {
  Rule rule;
  GradientSummary* step;
  State* state;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const { rule(*step, *state); }
};

/// The same numbers, if no rank has met an unknown id.
/// @param resources of the rank whose step it is
/// @throws DataError if a rank has; the rank's own error has the place.
template <class Target>
[[nodiscard]] GradientSummary with_known_ids(const GradientSummary& step,
                                             TargetResources<Target>& resources) {
  if (step.unknown_ids > 0) {
    require_known_ids(resources);
    throw DataError("Token ids: they must be below the vocabulary on all ranks, but " +
                        std::to_string(step.unknown_ids) +
                        " of the other ranks have read one beyond it (see their errors, which name it)",
                    {.rank = resources.core().world().world_rank()});
  }
  return step;
}

} // namespace detail

/// @brief The results of a finished step on a device: a handle to a GradientSummary in its memory, which
/// later kernels read. The accumulator's next step overwrites it, in stream order.
template <class Target> class DeviceSummary {
public:
  explicit DeviceSummary(const detail::DeviceValue<GradientSummary, Target>& record) : record_(&record) {}

  [[nodiscard]] GradientSummary* record() const { return record_->get(); }
  [[nodiscard]] detail::TargetResources<Target>& resources() const { return record_->resources(); }
  [[nodiscard]] const typename Target::execution_space& execution() const { return record_->execution(); }

  /// @brief The numbers; waits for the device (StepReports does not).
  /// @throws DataError on every rank if one has met a token id beyond the vocabulary.
  [[nodiscard]] GradientSummary read() const { return detail::with_known_ids(record_->read(), resources()); }

private:
  const detail::DeviceValue<GradientSummary, Target>* record_;
};

/// @brief The results of a finished step where a target's kernels can read them.
template <class Target>
using GradientSummaryOn =
    std::conditional_t<bool(Target::host_accessible), GradientSummary, DeviceSummary<Target>>;

namespace detail {

/// The numbers of a step, in the memory of the target.
[[nodiscard]] inline GradientSummary* record_of(GradientSummary& step) noexcept { return &step; }
template <class Target> [[nodiscard]] GradientSummary* record_of(const DeviceSummary<Target>& step) {
  return step.record();
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
