// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What a layer keeps between its passes and what it computes again in the backward pass.

#include <shardwright/core/config.hpp>

#include <cstdint>
#include <limits>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief What a layer computes again before its input gradient, instead of keeping it.
///
/// Chen et al., arXiv 1604.06174 (full), and Korthikanti et al., arXiv 2205.05198, section 5 (selective).
enum class Recompute : std::uint8_t {
  none,
  selective, ///< Attention alone: its output and its log-sum-exp are not kept.
  full,      ///< The layer: only its input is kept.
};

/// @brief Its name in lower case.
[[nodiscard]] constexpr std::string_view name_of(Recompute kind) noexcept {
  return kind == Recompute::none ? "none" : kind == Recompute::selective ? "selective" : "full";
}

/// @brief The choice for every layer: `kind` for the first `layers` of the model, `others` for the rest.
///
/// It moves work and memory, and changes no bit of a result.
struct Recomputation {
  Recompute kind = Recompute::none;
  std::int64_t layers = std::numeric_limits<std::int64_t>::max();
  Recompute others = Recompute::none;

  /// @brief That of the layer with this number in the whole model.
  [[nodiscard]] constexpr Recompute of(std::int64_t layer) const noexcept {
    return layer < layers ? kind : others;
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
