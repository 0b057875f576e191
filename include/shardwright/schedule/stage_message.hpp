// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The messages that an action sends to the next stage and receives from the one before.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <optional>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The message of one stage to its neighbour for a microbatch: an activation onwards, or an input
/// gradient back.
///
/// Stage, direction and microbatch name it: messages are matched by them, never by order.
struct StageMessage {
  bool gradient = false;
  int stage = 0; ///< Stage that makes it.
  int microbatch = 0;
  int from_rank = 0;
  int to_rank = 0;

  /// @brief Stage that takes it.
  [[nodiscard]] constexpr int to_stage() const noexcept { return stage + (gradient ? -1 : 1); }
  /// @brief Returns whether it is sent at all. Stages on one rank hand over without a message.
  [[nodiscard]] constexpr bool is_sent() const noexcept { return from_rank != to_rank; }

  friend constexpr bool operator==(const StageMessage&, const StageMessage&) = default;
};

/// @brief The message that a stage makes for a microbatch; none from the last stage onwards or the first
/// back.
[[nodiscard]] constexpr std::optional<StageMessage> stage_message(const StagePlacement& placement, int stage,
                                                                  int microbatch, bool gradient) {
  const int to = stage + (gradient ? -1 : 1);
  if (stage < 0 || to < 0 || stage >= placement.stages() || to >= placement.stages())
    return std::nullopt;
  return StageMessage{gradient, stage, microbatch, placement.rank_of(stage, microbatch),
                      placement.rank_of(to, microbatch)};
}

/// @brief The pass that makes a message; the B that may stand for an I is named I.
[[nodiscard]] constexpr Action action_of(const StageMessage& message) {
  return {message.gradient ? Pass::input_gradient : Pass::forward, message.stage, message.microbatch};
}

/// @brief Returns the message that an action makes for a neighbouring stage; none for a W or at the ends of
/// the model.
[[nodiscard]] constexpr std::optional<StageMessage> output_of(const StagePlacement& placement,
                                                              const Action& action) {
  if (action.pass == Pass::weight_gradient)
    return std::nullopt;
  return stage_message(placement, action.stage, action.microbatch, action.pass != Pass::forward);
}

/// @brief Returns the message that an action takes from a neighbouring stage; none for a W or at the ends of
/// the model.
[[nodiscard]] constexpr std::optional<StageMessage> input_of(const StagePlacement& placement,
                                                             const Action& action) {
  if (action.pass == Pass::weight_gradient)
    return std::nullopt;
  const bool gradient = action.pass != Pass::forward;
  return stage_message(placement, action.stage + (gradient ? 1 : -1), action.microbatch, gradient);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
