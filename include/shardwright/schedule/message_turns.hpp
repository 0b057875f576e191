// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The order of a schedule's messages for communicators that match messages by order, as NCCL does.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/simulation.hpp>
#include <shardwright/schedule/stage_message.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The turns in which one rank of a proven schedule carries its messages, if each rank carries them
/// one turn after the other, and the messages of a turn together.
///
/// A turn is a moment at which messages arrive in a simulation where each takes a short time. No rank waits
/// in a ring, because whatever a message needs happens before its moment:
///
/// 1. Its data was computed from messages that arrived earlier, and both its ends were ready earlier.
/// 2. So were both ends of every message of the same moment: a rank that waits for one of them has started
///    them all.
/// 3. All ranks carry their messages in the order of the moments; the earliest that has not arrived waits for
///    nothing.
///
/// Two messages of a turn may have the same ends. These start them in the order of their places, since they
/// may have got ready in different orders.
class MessageTurns {
public:
  MessageTurns() = default;
  /// @param lowest the first stage to which gradients are sent
  ///
  /// Cost: one simulation of all ranks.
  MessageTurns(const Schedule& schedule, int rank, int lowest = 0);

  /// @brief The turn of a message that this rank sends or receives, from 0.
  [[nodiscard]] int turn_of(const StageMessage& message) const { return turns_[place_of(message)]; }
  /// @brief A number that is the same at both ends of a message, and another one for every message.
  [[nodiscard]] std::size_t place_of(const StageMessage& message) const noexcept {
    return 2 * static_cast<std::size_t>(message.stage * microbatches_ + message.microbatch) +
           (message.gradient ? 1 : 0);
  }
  /// @brief The number of messages of this rank in each turn.
  [[nodiscard]] const std::vector<int>& sizes() const noexcept { return sizes_; }

private:
  int microbatches_ = 0;
  std::vector<int> turns_;
  std::vector<int> sizes_;
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE MessageTurns::MessageTurns(const Schedule& schedule, int rank, int lowest)
    : microbatches_(schedule.microbatches()),
      turns_(2 * static_cast<std::size_t>(schedule.stages()) * static_cast<std::size_t>(microbatches_), -1) {
  // A power of two, so that sums are exact and equal moments compare equal.
  PassCosts costs;
  costs.send = 1.0 / 1024;
  std::vector<std::pair<double, std::size_t>> arrivals; // of this rank's messages, by place in the table
  detail::Simulation<Schedule> simulation(schedule, costs, schedule.window());
  simulation.run([&](int receiver, const Step& step, double, double) {
    for (int i = 0; i < step.size(); ++i)
      if (const auto in = input_of(schedule.placement(), step[i]);
          in && in->is_sent() && in->reaches(lowest) && (in->from_rank == rank || in->to_rank == rank))
        arrivals.emplace_back(simulation.arrived(receiver, i), place_of(*in));
  });
  std::sort(arrivals.begin(), arrivals.end());
  double moment = -1;
  for (const auto& [arrived, place] : arrivals) {
    if (arrived > moment)
      sizes_.push_back(0);
    moment = arrived;
    ++sizes_.back();
    turns_[place] = static_cast<int>(sizes_.size()) - 1;
  }
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
