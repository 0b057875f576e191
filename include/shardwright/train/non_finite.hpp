// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief How to treat a non-finite step, as a value for command lines.

#include <shardwright/core/config.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief How to treat a step whose loss or gradients are infinite or NaN.
enum class NonFinite : std::uint8_t {
  stop, ///< Throw on every rank.
  skip  ///< Leave parameters and optimizer unchanged and continue.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
