// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reports of steps on a device, which the host reads while the device continues.

#include <shardwright/core/error.hpp>
#include <shardwright/core/source_location.hpp>
#include <shardwright/device/driven_transports.hpp>
#if defined(__CUDACC__)
#include <shardwright/tensor/memory/cuda_flag.hpp>
#endif
#include <shardwright/tensor/memory/device_value.hpp>
#include <shardwright/tensor/memory/shared_memory.hpp>
#include <shardwright/train/step/record.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

struct ReportSlot {
  GradientSummary step;
  std::uint64_t number = 0; ///< Of the report, from 1.
};

/// Writes the step first, and its number once the host can see the step.
struct PublishReport {
  const GradientSummary* step;
  ReportSlot* slot;
  std::uint64_t number;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    slot->step = *step;
#if defined(__CUDA_ARCH__)
    publish_to_host(&slot->number, number);
#else
    __atomic_store_n(&slot->number, number, __ATOMIC_RELEASE);
#endif
  }
};

} // namespace detail

/// @brief The reports of steps, in order: the device writes each to host memory, and the host reads it at any
/// time. Nothing synchronises with the stream.
template <class Target> class StepReports {
public:
  /// @brief Reports that may be pending; one more must wait until the oldest is taken.
  static constexpr std::size_t capacity = 4;

  /// @param deadline the longest time that take() waits
  explicit StepReports(std::chrono::nanoseconds deadline) : deadline_(deadline), slots_(capacity) {}

  /// @brief Reports a finished step, after all work now on the stream.
  /// @throws LifecycleError if `capacity` reports wait to be taken.
  void append(const DeviceSummary<Target>& summary) {
    if (pending() == capacity)
      throw LifecycleError("StepReports: at most " + std::to_string(capacity) +
                           " reports may be pending (take() the oldest before the next append)");
    ++appended_;
    resources_ = &summary.resources();
    detail::run_once(
        "sw::report", summary.execution(),
        detail::PublishReport{summary.record(), slots_.data() + (appended_ - 1) % capacity, appended_});
    if constexpr (counts_only<Target>) // instead of the kernel, which does not run in a dry run
      slots_.data()[(appended_ - 1) % capacity] = detail::ReportSlot{
          GradientSummary{.loss = {1}, .tokens = 1, .gradient_norm = 1, .take = true}, appended_};
  }

  /// @brief Number of reports that were appended but not taken.
  [[nodiscard]] std::size_t pending() const noexcept { return static_cast<std::size_t>(appended_ - taken_); }
  /// @brief Returns whether take() would return immediately.
  [[nodiscard]] bool ready() const { return pending() > 0 && arrived(); }

  /// @brief The oldest report; waits for it, but not for later work on the stream.
  /// @throws LifecycleError if none is pending; DeadlineExceeded; DataError for a token id beyond the
  /// vocabulary; the error of the device, or of a call that cannot end.
  [[nodiscard]] GradientSummary take(SourceLocation where = SourceLocation::current()) {
    if (pending() == 0)
      throw LifecycleError("StepReports: take() must follow an append() (append the step's summary first)");
    const auto reported = [this] {
      if (arrived())
        return true;
      static_cast<void>(
          Target::idle(resources_->execution())); // a device that has failed throws, and never reports
      return false;
    };
    if (!detail::await_device(reported, deadline_))
      late(where);
    return detail::with_known_ids(slots_.data()[taken_++ % capacity].step, *resources_);
  }

private:
  /// Ends the communicators of the rank as well: otherwise their kernels might block the device forever.
  [[noreturn]] void late(SourceLocation where) const {
    const std::string sentence = "the device must finish a step within " + detail::time_text(deadline_) +
                                 ", but step " + std::to_string(taken_ + 1) +
                                 " of the reports has not arrived";
    if (const auto transports = detail::DrivenTransports::find())
      transports->abort(sentence);
    throw DeadlineExceeded(
        {}, "StepReports: " + sentence + " (look for a rank that has ended, or set a longer deadline)",
        {.operation = "step report", .where = where});
  }
  [[nodiscard]] bool arrived() const {
    return __atomic_load_n(&slots_.data()[taken_ % capacity].number, __ATOMIC_ACQUIRE) == taken_ + 1;
  }

  std::chrono::nanoseconds deadline_;
  detail::TargetResources<Target>* resources_ = nullptr;
  detail::SharedMemory<detail::ReportSlot, Target> slots_; // take() every report before the end
  std::uint64_t appended_ = 0;
  std::uint64_t taken_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
