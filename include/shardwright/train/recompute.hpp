// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Which layers keep what between their passes, and which compute it again in the backward pass.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/recompute.hpp>

#include <cstdint>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI {

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
