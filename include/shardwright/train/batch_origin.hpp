// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The place of a microbatch in a training run.

#include <shardwright/core/config.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The place of a microbatch in a training run, by which its random numbers are keyed.
struct BatchOrigin {
  std::uint64_t step = 0;           ///< Optimizer step.
  std::uint64_t first_sequence = 0; ///< Place of its first sequence in the step's global batch.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
