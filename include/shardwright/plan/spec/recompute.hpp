// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The values that a backward pass computes again instead of keeping them.

#include <shardwright/core/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The values that a layer computes again before its input gradient, instead of keeping them.
///
/// Chen et al., arXiv 1604.06174 (full), and Korthikanti et al., arXiv 2205.05198, section 5 (selective).
enum class Recompute : std::uint8_t {
  none,
  selective, ///< Attention only: its output and its log-sum-exp are not kept.
  full,      ///< The layer: only its input is kept.
};

/// @brief "none", "selective" or "full".
[[nodiscard]] constexpr std::string_view name_of(Recompute kind) noexcept {
  constexpr std::array<std::string_view, 3> names{"none", "selective", "full"};
  return names[static_cast<std::size_t>(kind)];
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
