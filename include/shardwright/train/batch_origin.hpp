// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Where a microbatch stands in a training run.

#include <shardwright/core/config.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Where a microbatch stands in a training run: what its random numbers are keyed by.
struct BatchOrigin {
  std::uint64_t step = 0;           ///< Optimizer step.
  std::uint64_t first_sequence = 0; ///< Place of its first sequence in the step's global batch.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
