// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The operations that the ranks of a pipeline execute in one step.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/collective_time.hpp>
#include <shardwright/schedule/schedule.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The activities that a rank spends time on.
enum class Activity : std::uint8_t {
  compute,   ///< Passes of the schedule.
  optimizer, ///< The update, and the time by which hidden traffic slowed computation.
  tensor,    ///< Collectives of layers.
  context,
  expert,
  pipeline, ///< Messages between stages, in flight.
  data,     ///< Gathers of parameters and reductions of gradients.
  wait_input,
  wait_send,
  wait_peers, ///< Waiting for other replicas, to begin a collective.
};
inline constexpr std::array<std::string_view, 10> activity_names{
    "compute", "optimizer", "tensor",         "context",      "expert",
    "message", "data",      "wait for input", "wait to send", "wait for replicas"};

/// @brief One operation of a rank; if it waits, so do those after it.
struct StepOperation {
  enum class Kind : std::uint8_t {
    receive, ///< Waits for the inputs of step `index`.
    compute, ///< Of step `index`; -1 if it belongs to none.
    hide,    ///< Begins traffic that overlaps the next operations.
    settle,  ///< Waits for that traffic.
    move,    ///< Traffic that nothing hides.
    send,    ///< The result of action `index` % 2 of step `index` / 2, once its channel has room.
    join,    ///< Declares that it is ready for collective `index` of its stage.
    await    ///< Waits for that collective, which begins once all replicas have joined it.
  };
  Kind kind = Kind::compute;
  Activity activity = Activity::compute;
  std::uint16_t link = 0; ///< The shares of its traffic, in StepProgram::shares.
  int index = 0;
  double seconds = 0; ///< Without contention, on a healthy chip and link.
};

/// @brief A collective that one stage's ranks of all replicas run together.
struct StageCollective {
  double seconds = 0;
  std::size_t link = 0;
};

/// @brief The operations of every rank of a pipeline, the same for each replica.
struct StepProgram {
  Schedule schedule;
  std::vector<std::vector<StepOperation>> ranks{};
  std::vector<StageCollective> collectives{}; ///< Of each rank.
  std::vector<LinkShares> shares{};           ///< Shares of links that traffic uses.
  double send_seconds = 0;                    ///< Of a message, once both ends are ready.
  std::uint16_t send_link = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
