// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The position of a training run: all of its state except parameters and optimizer states.

#include <shardwright/core/config.hpp>
#include <shardwright/train/step/loss_scale.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The numbers that a run needs to resume as if it had never stopped; the same on every rank.
struct TrainingProgress {
  std::int64_t steps = 0;                     ///< Begun: the number of the next one.
  std::int64_t optimizer_steps = 0;           ///< How many of them the optimizer took.
  std::int64_t skipped_in_a_row = 0;          ///< Up to now, on the host.
  std::optional<LossScaleState> loss_scale{}; ///< If the loss is scaled dynamically.
  std::map<std::size_t, double> factors{};    ///< Of the optimizer's groups, set by set_factor.

  friend bool operator==(const TrainingProgress&, const TrainingProgress&) = default;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
