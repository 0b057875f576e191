// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The report of a training step.

#include <shardwright/core/config.hpp>

#include <cstdint>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The report of one step, the same on every rank.
struct StepReport {
  std::int64_t step = 0; ///< From 1.
  double loss = 0;       ///< Mean over the tokens.
  double gradient_norm = 0;
  double learning_rate = 0;
  std::int64_t tokens = 0; ///< Valid tokens of the global batch.
  bool skipped = false;    ///< Not taken by the optimizer.
  std::string note;        ///< Why it was skipped, or another remark.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
