// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Captures the work that a training step enqueues, and replays it step after step.

#include <shardwright/core/error.hpp>
#include <shardwright/device/graphs.hpp>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A step could not be captured, and part of it has been enqueued: the run cannot continue.
class CaptureFailed : public Error {
public:
  using Error::Error;
};

/// @brief How a step was executed.
enum class StepMode : std::uint8_t {
  plain,    ///< Its work was enqueued, call by call.
  captured, ///< Its work was captured, and replayed for the first time.
  replayed,
};

/// @brief Executes training steps: the first ones call by call, so that memory, communicators and optimizer
/// state are created and every kernel is launched once (the first launch of a unit makes Kokkos copy
/// addresses to the device, which a capture forbids); then one that is captured; then replays of it, each a
/// single host call.
///
/// A step must enqueue the same work every time, at the same addresses; varying data (batches, the learning
/// rate) is written to fixed addresses beforehand. The step must leave host objects unchanged, since a replay
/// does not touch them.
template <StepCapture Capture> class StepGraph {
public:
  /// @param obstacle a sentence that says why steps cannot be captured here, so that all are plain; or empty
  /// @param warm_up plain steps at the beginning
  explicit StepGraph(Capture capture, std::string obstacle = {}, int warm_up = 2)
      : capture_(std::move(capture)), obstacle_(std::move(obstacle)), warm_up_(warm_up) {}

  /// @brief Executes one step, which `enqueue()` enqueues.
  ///
  /// A failed capture is not an error: the step runs call by call, and obstacle() says why.
  /// @throws CaptureFailed if `enqueue` throws in a capture.
  template <class Enqueue> StepMode step(Enqueue&& enqueue) {
    if (!obstacle_.empty() || steps_++ < warm_up_) {
      enqueue();
      return StepMode::plain;
    }
    if (replayable_) {
      capture_.launch(*replayable_);
      return StepMode::replayed;
    }
    bool spoilt = false;
    capture_.begin();
    try {
      const detail::CaptureMark mark;
      enqueue();
      spoilt = mark.spoilt();
    } catch (const std::exception& cause) {
      capture_.discard();
      throw CaptureFailed(
          std::string("StepGraph: a step that is captured must only enqueue work, but it ended with: ") +
          cause.what() + " (run without capture)");
    }
    std::optional<typename Capture::Captured> captured = capture_.end();
    if (!captured || spoilt) {
      obstacle_ =
          "StepGraph: the step could not be captured, as something in it waits for the device, uses another stream, finds no kernel for a product or multiplies groups of rows; it runs call by call";
      enqueue();
      return StepMode::plain;
    }
    replayable_.emplace(capture_.instantiate(*std::move(captured)));
    capture_.launch(*replayable_);
    return StepMode::captured;
  }

  /// @brief Why steps are not captured; empty if they are, or will be.
  [[nodiscard]] const std::string& obstacle() const noexcept { return obstacle_; }

private:
  Capture capture_;
  std::string obstacle_;
  int warm_up_;
  std::int64_t steps_ = 0;
  std::optional<typename Capture::Replayable> replayable_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
