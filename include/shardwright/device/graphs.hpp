// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Captures the work of a device's stream, to replay it: what a target must provide, and how a kernel
/// launcher invalidates a capture.

#include <shardwright/core/config.hpp>

#include <concepts>
#include <optional>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The interface that captures and replays the work of a stream: CudaGraphs (device/cuda_graphs.hpp).
///
/// Work enqueued between `begin` and `end` does not run. `end` returns nothing if the capture is unusable.
template <class Type>
concept StepCapture = requires(Type& capture, typename Type::Captured captured,
                               typename Type::Replayable replayable) {
  capture.begin();
  { capture.end() } -> std::same_as<std::optional<typename Type::Captured>>;
  capture.discard();
  { capture.instantiate(std::move(captured)) } -> std::same_as<typename Type::Replayable>;
  capture.launch(replayable);
};

namespace detail {

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

/// For targets whose steps are never captured; a StepGraph with an obstacle does not use it.
struct NoCapture {
  struct Captured {};
  struct Replayable {};
  template <class Resources> explicit NoCapture(const Resources&) {}
  void begin() {}
  [[nodiscard]] std::optional<Captured> end() { return std::nullopt; }
  void discard() {}
  [[nodiscard]] Replayable instantiate(Captured) { return {}; }
  void launch(Replayable&) {}
};

template <class Target> struct CaptureOn { using type = NoCapture; };
/// A target may name the type that captures its work, which is made of the target's resources.
template <class Target>
requires requires { typename Target::step_capture; }
struct CaptureOn<Target> {
  using type = typename Target::step_capture;
};
template <class Target> using CaptureOf = typename CaptureOn<Target>::type;

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
