// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The treatment of a step that is not finite, as a value that command lines hold.

#include <shardwright/core/config.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The treatment of a step whose loss or gradients are infinite or NaN.
enum class NonFinite : std::uint8_t {
  stop, ///< Throw on every rank.
  skip  ///< Leave parameters and optimizer as they are and go on.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
