// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The messages that an action exchanges with neighbouring stages.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <optional>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The message from one stage to its neighbour for a microbatch: an activation to the next stage, or
/// an input gradient to the previous one.
///
/// Messages are matched by stage, direction and microbatch; where the ranks match them by order,
/// `MessageTurns` has one that does the same.
struct StageMessage {
  bool gradient = false;
  int stage = 0; ///< Stage that produces it.
  int microbatch = 0;
  int from_rank = 0;
  int to_rank = 0;

  /// @brief Stage that consumes it.
  [[nodiscard]] constexpr int to_stage() const noexcept { return stage + (gradient ? -1 : 1); }
  /// @brief Returns whether it is sent at all. Stages on the same rank exchange no messages.
  [[nodiscard]] constexpr bool is_sent() const noexcept { return from_rank != to_rank; }
  /// @brief Returns whether it exists at all if no stage before `lowest` has anything to train.
  [[nodiscard]] constexpr bool reaches(int lowest) const noexcept {
    return !gradient || to_stage() >= lowest;
  }

  friend constexpr bool operator==(const StageMessage&, const StageMessage&) = default;
};

/// @brief The message that a stage produces for a microbatch; none forward from the last stage or back from
/// the first.
[[nodiscard]] constexpr std::optional<StageMessage> stage_message(const StagePlacement& placement, int stage,
                                                                  int microbatch, bool gradient) {
  const int to = stage + (gradient ? -1 : 1);
  if (stage < 0 || to < 0 || stage >= placement.stages() || to >= placement.stages())
    return std::nullopt;
  return StageMessage{gradient, stage, microbatch, placement.rank_of(stage, microbatch),
                      placement.rank_of(to, microbatch)};
}

/// @brief The pass that produces a message; a B that takes the place of an I is named I.
[[nodiscard]] constexpr Action action_of(const StageMessage& message) {
  return {message.gradient ? Pass::input_gradient : Pass::forward, message.stage, message.microbatch};
}

/// @brief Returns the message that an action sends to a neighbouring stage; none for a W or at the ends of
/// the model.
[[nodiscard]] constexpr std::optional<StageMessage> output_of(const StagePlacement& placement,
                                                              const Action& action) {
  if (action.pass == Pass::weight_gradient)
    return std::nullopt;
  return stage_message(placement, action.stage, action.microbatch, action.pass != Pass::forward);
}

/// @brief Returns the message that an action receives from a neighbouring stage; none for a W or at the ends
/// of the model.
[[nodiscard]] constexpr std::optional<StageMessage> input_of(const StagePlacement& placement,
                                                             const Action& action) {
  if (action.pass == Pass::weight_gradient)
    return std::nullopt;
  const bool gradient = action.pass != Pass::forward;
  return stage_message(placement, action.stage + (gradient ? 1 : -1), action.microbatch, gradient);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
