// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reports of steps on a device, read by the host while the device goes on.

#include <shardwright/core/error.hpp>
#include <shardwright/core/source_location.hpp>
#include <shardwright/tensor/device_value.hpp>
#include <shardwright/tensor/shared_memory.hpp>
#include <shardwright/train/step_record.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

struct ReportSlot {
  StepRecord record;
  std::uint64_t number = 0; ///< Of the report that the record is, from 1.
};

/// The record first, and its number when the host can see it.
struct PublishReport {
  const StepRecord* record;
  ReportSlot* slot;
  std::uint64_t number;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    slot->record = *record;
#if defined(__CUDA_ARCH__)
    __threadfence_system();
    *const_cast<volatile std::uint64_t*>(&slot->number) = number;
#else
    __atomic_store_n(&slot->number, number, __ATOMIC_RELEASE);
#endif
  }
};

} // namespace detail

/// @brief A step of a device as the host learns of it.
struct DeviceStepReport {
  GradientSummary summary;
  bool taken = false;       ///< By the optimizer.
  bool halted = false;      ///< A StepGuard ends the run at this step or has ended it before.
  std::int64_t skipped = 0; ///< Steps in a row that a StepGuard held back, up to this one.
};

/// @brief The reports of steps, in their order: the device writes each into memory of the host, and the host
/// looks when it likes. Nothing synchronises with the stream.
template <class Target>
class StepReports {
public:
  /// @brief Reports that may be under way; one more must wait until the oldest is taken.
  static constexpr std::size_t capacity = 4;

  /// @param deadline the longest time that take() waits
  explicit StepReports(std::chrono::nanoseconds deadline) : deadline_(deadline), slots_(capacity) {}

  /// @brief Reports a finished step, after what the stream holds now. @throws LifecycleError where `capacity`
  /// reports wait to be taken.
  void append(const DeviceSummary<Target>& summary) {
    if (pending() == capacity)
      throw LifecycleError("StepReports: at most " + std::to_string(capacity) +
                           " reports may be under way (take() the oldest before the next append)");
    ++appended_;
    detail::run_once(
        "sw::report", summary.execution(),
        detail::PublishReport{summary.record(), slots_.data() + (appended_ - 1) % capacity, appended_});
  }

  /// @brief Reports that were appended and not taken.
  [[nodiscard]] std::size_t pending() const noexcept { return static_cast<std::size_t>(appended_ - taken_); }
  /// @brief Whether take() would return at once.
  [[nodiscard]] bool ready() const { return pending() > 0 && arrived(); }

  /// @brief The oldest report; waits for it, and for nothing that the stream got after it.
  /// @throws LifecycleError where none is under way, DeadlineExceeded, InvalidArgument for a batch without
  /// tokens.
  [[nodiscard]] DeviceStepReport take(SourceLocation where = SourceLocation::current()) {
    if (pending() == 0)
      throw LifecycleError("StepReports: take() must follow an append() (append the step's summary first)");
    const auto give_up = std::chrono::steady_clock::now() + deadline_;
    for (int turn = 0; !arrived(); ++turn) {
      if (turn < 100)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      if (std::chrono::steady_clock::now() > give_up)
        throw DeadlineExceeded({},
                               "StepReports: the device must finish a step within the deadline, but step " +
                                   std::to_string(taken_ + 1) +
                                   " of the reports has not come (look for a rank "
                                   "that has ended, or give a longer deadline)",
                               {.operation = "step report", .where = where});
    }
    const StepRecord record = slots_.data()[taken_ % capacity].record;
    ++taken_;
    return {detail::summary_of(record), record.take != 0, record.halted != 0, record.skipped};
  }

private:
  [[nodiscard]] bool arrived() const {
    return __atomic_load_n(&slots_.data()[taken_ % capacity].number, __ATOMIC_ACQUIRE) == taken_ + 1;
  }

  std::chrono::nanoseconds deadline_;
  detail::SharedMemory<detail::ReportSlot, Target> slots_; // take() every report before the end
  std::uint64_t appended_ = 0;
  std::uint64_t taken_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
