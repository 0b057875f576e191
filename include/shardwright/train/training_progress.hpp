// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The place of a training in its run: all that it keeps beside parameters and their states.

#include <shardwright/core/config.hpp>
#include <shardwright/train/loss_scale.hpp>

#include <cstdint>
#include <optional>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The numbers that a run needs to go on as if it had never stopped; the same on every rank.
struct TrainingProgress {
  std::int64_t steps = 0;                     ///< Begun: the number of the next one.
  std::int64_t optimizer_steps = 0;           ///< Of these, those that the optimizer took.
  std::int64_t skipped_in_a_row = 0;          ///< Up to now, on the host.
  std::optional<LossScaleState> loss_scale{}; ///< Where the loss is scaled dynamically.

  friend bool operator==(const TrainingProgress&, const TrainingProgress&) = default;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
