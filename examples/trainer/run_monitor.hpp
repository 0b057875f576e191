// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The reports of a run to people and files, while it runs and at its end.

#include "options.hpp"

#include <shardwright/comm/observe/communication_clock.hpp>
#include <shardwright/nn/experts/report.hpp>
#include <shardwright/train/step/report.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trainer {

/// @brief The facts about a run that are known before its first step.
struct RunFacts {
  double tokens_per_step = 0;
  double flops_per_token = 0;
  double matrix_rate = 0;  ///< Floating-point operations per second of all ranks; 0: not measured.
  std::string_view unit;   ///< Whose mean the loss is: "byte", "token", "sample".
  bool every_step = false; ///< Print each step with all digits instead of progress now and then.

  /// @brief The share of the matrix rate that `rate` tokens per second reach.
  [[nodiscard]] double share(double rate) const noexcept {
    return matrix_rate > 0 ? rate * flops_per_token / matrix_rate : 0;
  }
};

/// @brief Progress line, metrics, TensorBoard, spikes and summary. Every rank has a monitor; the first one
/// reports.
class RunMonitor {
public:
  /// @param clock counts this rank's communication, and is held outside of steps
  RunMonitor(const RunOptions& options, const RunFacts& facts, bool reports,
             std::shared_ptr<shardwright::CommunicationClock> clock);
  ~RunMonitor();

  /// @brief Opens a step.
  void begin_step();
  /// @brief Ends the current step.
  void end_step(const shardwright::StepReport& report);
  /// @brief Reports the expert loads of a finished step, for a model with experts.
  void experts(std::int64_t step, std::span<const shardwright::ExpertLoadReport> layers);
  /// @brief A line between the steps.
  void note(const std::string& line);
  /// @brief A held-out loss after a step.
  void validation(std::int64_t step, double loss);
  /// @brief Collective over `world`: gathers and prints the summary. @return seconds of all steps
  double finish(const shardwright::HostCommunicator& world, std::size_t pool_peak_bytes);

private:
  struct State; // keeps JSON out of the training's translation units
  std::unique_ptr<State> state_;
};

} // namespace trainer
