// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief HashedValue: a name and the hash of what has it.

#include <shardwright/core/config.hpp>

#include <cstdint>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A value of a step of training as a hash, such as "gradient of layers.1.down"; the hash of a number
/// is its bits.
struct HashedValue {
  std::string name;
  std::uint64_t hash = 0;

  friend bool operator==(const HashedValue&, const HashedValue&) = default;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
