// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A flag by which a kernel launcher invalidates the current capture.

#include <shardwright/core/config.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The calling thread's capture. During its lifetime, enqueued work does not run, so a launcher that cannot
/// be captured may skip its work and invalidate the capture: the step is then enqueued again, call by call.
class CaptureMark {
public:
  CaptureMark() noexcept { current() = this; }
  ~CaptureMark() { current() = nullptr; }
  CaptureMark(const CaptureMark&) = delete;
  CaptureMark& operator=(const CaptureMark&) = delete;

  [[nodiscard]] bool spoilt() const noexcept { return spoilt_; }
  /// False if this thread captures nothing: then the failure is an error.
  [[nodiscard]] static bool spoil() noexcept {
    if (current() == nullptr)
      return false;
    return current()->spoilt_ = true;
  }

private:
  [[nodiscard]] static CaptureMark*& current() noexcept {
    thread_local CaptureMark* mark = nullptr;
    return mark;
  }
  bool spoilt_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
