// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief How to treat a step that no optimizer can take, as values for command lines.

#include <shardwright/core/config.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief How to treat a step whose loss or gradients are infinite or NaN.
enum class NonFinite : std::uint8_t {
  stop, ///< Throw on every rank.
  skip  ///< Leave parameters and optimizer unchanged and continue.
};

/// @brief How to treat a step whose global batch has no token that counts, since all targets are masked.
enum class EmptyBatch : std::uint8_t {
  skip, ///< Leave parameters and optimizer unchanged and continue.
  stop  ///< Throw on every rank.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
