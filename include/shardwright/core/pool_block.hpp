// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sizes in which a pool hands out memory: eight per power of two, so at most 1/8 of a block is
/// unused.

#include <shardwright/core/config.hpp>

#include <bit>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The block that a pool returns for a request.
struct PoolBlock {
  std::size_t size_class = 0; ///< Index of the size class, smallest first.
  std::size_t bytes = 0;      ///< At least the number requested.
};

namespace detail {

/// Number of size classes.
inline constexpr std::size_t pool_size_classes = 57 * 8;

} // namespace detail

/// @brief The block for a request of `bytes` bytes.
[[nodiscard]] constexpr PoolBlock pool_block(std::size_t bytes) noexcept {
  constexpr std::size_t smallest = 256;
  if (bytes <= smallest)
    return {0, smallest};
  const auto power =
      static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1; // 2^power < bytes <= 2^(power + 1)
  const std::size_t step = std::size_t{1} << (power - 3);
  const std::size_t eighths = (bytes - (std::size_t{1} << power) + step - 1) / step; // 1..8
  return {(power - 8) * 8 + eighths, (std::size_t{1} << power) + eighths * step};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
