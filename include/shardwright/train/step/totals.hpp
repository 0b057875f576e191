// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sums of one step on a device: loss, tokens and squares of the gradient, reduced and turned into
/// a StepRecord without the host.

#include <shardwright/tensor/memory/scalars.hpp>
#include <shardwright/train/step/device_loss.hpp>
#include <shardwright/train/step/device_loss_scale.hpp>
#include <shardwright/train/step/record.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Packs the sums of a rank for a single reduction; a null `loss` contributes nothing.
struct CollectTotals {
  const double* loss; // and tokens
  const double* squares;
  const kernels::IdFault* fault;
  double* totals;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    totals[0] = loss == nullptr ? 0 : loss[0];
    totals[1] = loss == nullptr ? 0 : loss[1];
    totals[2] = *squares;
    totals[3] = fault == nullptr ? 0 : fault->found;
  }
};

/// The arithmetic of GradAccumulator::finish and GradientScale, operation for operation.
struct SummarizeTotals {
  const double* totals;
  StepRecord* record;
  LossExponent exponent;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    const int loss_exponent = exponent.value();
    const double factor = totals[1] > 0 ? 1 / totals[1] / std::ldexp(1.0, loss_exponent) : 0;
    record->loss = totals[0] / totals[1];
    record->tokens = totals[1];
    record->gradient_norm = std::sqrt(totals[2]) * factor;
    record->scale = factor;
    record->loss_exponent = loss_exponent;
    // x - x is 0 only for a finite number.
    const bool finite =
        record->loss - record->loss == 0 && record->gradient_norm - record->gradient_norm == 0;
    record->finite = finite ? 1 : 0;
    record->overflowed = 0;
    record->unknown_ids = static_cast<std::int32_t>(totals[3]);
    record->take = record->unknown_ids == 0 ? record->finite : 0;
    record->halted = 0;
  }
};

/// Adds the losses of microbatches, in order, and finishes the step.
template <class Target> class StepTotals {
public:
  /// @param counts whether this rank is the one of its replicas that counts
  void add(const DeviceSums<Target>& sums, bool counts) { (counts ? counted_ : others_) += sums; }

  /// The reduced step. Collective over `ranks`; null for a single rank.
  template <class Ranks>
  [[nodiscard]] DeviceSummary<Target> finish(Ranks* ranks, const Scalars<1, Target>& squares,
                                             const DeviceLossScale<Target>& scale) {
    TargetResources<Target>& resources = squares.resources();
    const auto& execution = resources.execution();
    if (!totals_) {
      totals_.emplace(resources);
      record_.emplace(resources);
    }
    double* const totals = totals_->view().data();
    run_once("sw::collect", execution,
             CollectTotals{counted_.data(), squares.values().data(),
                           resources.id_faults() ? id_fault(resources) : nullptr, totals});
    if (ranks != nullptr)
      ranks->all_reduce_in_place(std::span<double>(totals, 4));
    run_once("sw::summarize", execution, SummarizeTotals{totals, record_->get(), scale.exponent()});
    return DeviceSummary<Target>(*record_);
  }

  /// The sum of this rank's token losses; waits for the device.
  [[nodiscard]] double local_loss() const { return counted_.numbers()[0] + others_.numbers()[0]; }
  void restart() {
    counted_ = {};
    others_ = {};
  }

private:
  DeviceSums<Target> counted_, others_;
  // At the same address in all steps, where captured kernels find them.
  std::optional<Scalars<4, Target>> totals_;
  std::optional<DeviceValue<StepRecord, Target>> record_;
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
