// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The result of proving a schedule: whether it holds, the microbatches it keeps and the time it
/// takes.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The kind of the first fault found in a schedule.
enum class ScheduleFault : std::uint8_t {
  none,
  unknown,      ///< An action names a stage or microbatch that does not exist.
  misplaced,    ///< An action is on a rank that does not hold its stage.
  repeated,     ///< An action appears twice, or an I or a W beside the B that holds it.
  missing,      ///< An action is missing.
  out_of_order, ///< An action comes before one of its own rank that it needs.
  deadlock,     ///< Ranks wait for one another.
};

/// @brief The first fault of a schedule and where it is.
struct ScheduleFailure {
  ScheduleFault fault = ScheduleFault::none;
  int rank = -1;   ///< Rank whose order is at fault, or where the cycle of waits begins.
  int step = -1;   ///< Position in its order, from 0; -1 if the action is missing.
  Action action{}; ///< The action of the rank there.
  Action needed{}; ///< The action that it waits for, if any.
};

/// @brief The microbatches that one rank keeps and the time it works, in the unit of the PassCosts.
struct RankProof {
  int peak_in_flight = 0;            ///< As Proof::peak_in_flight, on this rank.
  int peak_until_input_gradient = 0; ///< As Proof::peak_until_input_gradient, on this rank.
  double busy = 0;                   ///< Time spent in passes.
  double begin = 0;                  ///< Start of its first pass.
  double end = 0;                    ///< End of its last pass.

  /// @brief Idle time between its first and its last pass.
  [[nodiscard]] constexpr double stall() const noexcept { return end - begin - busy; }
};

/// @brief Result of a proof; the figures are valid only if it holds. Times are in the unit of the PassCosts.
struct Proof {
  bool complete = false; ///< Every microbatch passes once through every stage: F, I and W, or F and B.
  bool ordered = false;  ///< Every action comes after what it needs: F before I, I before W, stage by stage.
  bool deadlock_free = false; ///< It completes when sends and receives are issued as a MessageWindow allows.
  int peak_in_flight = 0; ///< Most microbatches (of a chunk) on a rank, from the start of F to the end of W.
  int peak_until_input_gradient = 0; ///< The same if activations are freed at the end of I.
  double makespan = 0;               ///< From the first start to the last end.
  double bubble = 0;                 ///< Makespan less the busy time, of the rank that idles most.
  double stall = 0;                  ///< Idle time inside its span, of the rank that has most.
  ScheduleFailure failure{};         ///< The fault if it does not hold.

  /// @brief Returns whether the schedule may be run.
  [[nodiscard]] constexpr bool holds() const noexcept { return complete && ordered && deadlock_free; }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
