// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The results of a finished step: as host numbers, or as a record in device memory that kernels read.

#include <shardwright/tensor/checks/id_faults.hpp>
#include <shardwright/tensor/memory/device_value.hpp>
#include <shardwright/train/step/loss.hpp>
#include <shardwright/train/step/loss_scale.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A finished step in device memory; the same on every rank.
struct StepRecord {
  double loss = 0;                ///< Mean over the tokens.
  double tokens = 0;              ///< Valid tokens of the global batch.
  double gradient_norm = 0;       ///< Of the gradient of the mean loss.
  double scale = 0;               ///< GradientScale::factor, before clipping.
  std::int32_t loss_exponent = 0; ///< Of the loss scale contained in the gradients.
  std::int32_t finite = 0;        ///< Whether loss and norm are finite.
  std::int32_t overflowed = 0;    ///< Whether a smaller loss scale is tried instead.
  std::int32_t take = 0;          ///< Whether the optimizer takes the step.
  std::int32_t unknown_ids = 0;   ///< Ranks that have met a token id beyond the vocabulary.
  std::int32_t halted = 0;        ///< Whether a StepGuard admits no more steps.
  std::int64_t skipped = 0;       ///< Steps in a row that a StepGuard has rejected, up to this one.
};

/// @brief The results of a finished step, the same on every rank.
struct GradientSummary {
  MeanLoss loss;            ///< Sum of token losses over the global number of tokens.
  std::int64_t tokens = 0;  ///< Valid tokens of the global batch.
  double gradient_norm = 0; ///< Norm of the gradient of the mean loss, every element counted once.
  GradientScale scale{1};   ///< The gradients are those of the scaled, summed loss; this factor converts them
                            ///< to those of the mean.

  /// @brief Returns whether loss and gradients are finite numbers; false without tokens.
  [[nodiscard]] bool finite() const { return std::isfinite(loss.value) && std::isfinite(gradient_norm); }
  /// @brief Returns itself, like DeviceSummary::read on a device.
  [[nodiscard]] const GradientSummary& read() const noexcept { return *this; }
};

namespace detail {

/// @param resources of the rank whose record it is
/// @throws DataError if a rank has met a token id beyond the vocabulary; the rank's own error has its place.
template <class Target>
[[nodiscard]] GradientSummary summary_of(const StepRecord& record, TargetResources<Target>& resources) {
  if (record.unknown_ids > 0) {
    require_known_ids(resources);
    throw DataError("Token ids: they must be below the vocabulary on all ranks, but " +
                        std::to_string(record.unknown_ids) +
                        " of the other ranks have read one beyond it (see their errors, which name it)",
                    {.rank = resources.core().world().world_rank()});
  }
  GradientSummary out;
  out.loss.value = record.loss;
  out.tokens = static_cast<std::int64_t>(record.tokens);
  out.gradient_norm = record.gradient_norm;
  out.scale = GradientScale(out.tokens, LossScale::power_of_two(record.loss_exponent));
  return out;
}

} // namespace detail

/// @brief The results of a finished step on a device: a handle to its StepRecord, which later kernels read.
/// The accumulator's next step overwrites it, in stream order.
template <class Target> class DeviceSummary {
public:
  explicit DeviceSummary(const detail::DeviceValue<StepRecord, Target>& record) : record_(&record) {}

  [[nodiscard]] StepRecord* record() const { return record_->get(); }
  [[nodiscard]] detail::TargetResources<Target>& resources() const { return record_->resources(); }
  [[nodiscard]] const typename Target::execution_space& execution() const { return record_->execution(); }

  /// @brief The numbers; waits for the device (StepReports does not).
  /// @throws DataError on every rank if one has met a token id beyond the vocabulary.
  [[nodiscard]] GradientSummary read() const { return detail::summary_of(record_->read(), resources()); }

private:
  const detail::DeviceValue<StepRecord, Target>* record_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
