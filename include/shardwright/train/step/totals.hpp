// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sums of one step on a rank: losses and tokens of its microbatches, and with the squares of the
/// gradient reduced over all ranks to a GradientSummary, on a device without the host.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/mesh/device_communicator_for.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/memory/scalars.hpp>
#include <shardwright/train/step/device_loss.hpp>
#include <shardwright/train/step/global_sum.hpp>
#include <shardwright/train/step/record.hpp>

#include <array>
#include <cstddef>
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
struct SummarizeTotals {
  const double* totals;
  GradientSummary* step;
  kernels::LossFactor factor;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const { *step = summarize(totals, factor.value()); }
};

/// Adds the losses of microbatches, in order, and finishes the step; on a host. On a Reproducible target the
/// losses consist of loss_term(), and all sums are exact.
template <class Target> class StepTotals {
public:
  /// @param counts whether this rank is the one of its replicas that counts
  template <LayoutType L> void add(const CountedLoss<L>& sums, bool counts) {
    local_loss_ += sums.loss.value;
    if (!counts)
      return;
    loss_ += sums.loss.value;
    tokens_ += sums.tokens.value;
  }
  /// The reduced step. Collective over `ranks`: one all_reduce of three numbers.
  template <class Squares>
  [[nodiscard]] GradientSummary finish(MeshCore&, const HostCommunicator& ranks, const Squares& squares,
                                       const LossScale& scale) const {
    std::array<double, 3> sums{loss_, static_cast<double>(tokens_)};
    if constexpr (is_reproducible<Target>) {
      sums = exact_sums_over_ranks<3>(ranks, {ExactSum(sums[0]), ExactSum(sums[1]), squares});
    } else {
      sums[2] = squares.read()[0];
      sum_over_ranks(ranks, sums);
    }
    const double totals[] = {sums[0], sums[1], sums[2], 0};
    return summarize(totals, counts_only<Target> ? scale.factor() : scale.in_kernels().value());
  }
  /// The sum of this rank's token losses.
  [[nodiscard]] double local_loss() const { return local_loss_; }
  void restart() { *this = {}; }

private:
  double local_loss_ = 0;
  double loss_ = 0;
  std::int64_t tokens_ = 0;
};

/// The same on a device.
template <class Target>
requires(!Target::host_accessible) class StepTotals<Target> {
public:
  template <LayoutType L> void add(const DeviceLoss<L, Target>& sums, bool counts) {
    (counts ? counted_ : others_) += sums;
  }
  [[nodiscard]] DeviceSummary<Target> finish(MeshCore& core, const HostCommunicator& ranks,
                                             const Scalars<1, Target>& squares, const LossScale& scale) {
    TargetResources<Target>& resources = squares.resources();
    const auto& execution = resources.execution();
    if (!totals_) {
      totals_.emplace(resources);
      record_.emplace(resources);
      if (ranks.size() > 1)
        group_ = device_communicator_for<Target>(core, ranks);
    }
    double* const totals = totals_->view().data();
    run_once("sw::collect", execution,
             CollectTotals{counted_.data(), squares.values().data(),
                           resources.id_faults() ? id_fault(resources) : nullptr, totals});
    if (group_.valid())
      group_.all_reduce_in_place(std::span<double>(totals, 4));
    run_once("sw::summarize", execution, SummarizeTotals{totals, record_->get(), scale.in_kernels()});
    return DeviceSummary<Target>(*record_);
  }
  /// Waits for the device.
  [[nodiscard]] double local_loss() const { return counted_.numbers()[0] + others_.numbers()[0]; }
  void restart() {
    counted_ = {};
    others_ = {};
  }

private:
  DeviceSums<Target> counted_, others_;
  // At the same address in all steps, where captured kernels find them.
  std::optional<Scalars<4, Target>> totals_;
  std::optional<DeviceValue<GradientSummary, Target>> record_;
  CommunicatorOf<Target> group_; // over all ranks
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
