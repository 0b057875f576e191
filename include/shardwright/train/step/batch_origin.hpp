// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The position of a microbatch in a training run.

#include <shardwright/core/config.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The position of a microbatch in a training run, which keys its random numbers.
struct BatchOrigin {
  std::uint64_t step = 0;           ///< Optimizer step.
  std::uint64_t first_sequence = 0; ///< Index of its first sequence in the step's global batch.
  std::uint64_t sequences = 0;      ///< Sequences in it; if 0, the rows of a mask must be sequences.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
