// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The values that a backward pass computes again instead of keeping them.

#include <shardwright/core/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

// g++ warns that the last enumerator shadows the mask of its name, although it needs Recompute::.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
/// @brief The values that a layer computes again before its input gradient, instead of keeping them.
///
/// Chen et al., arXiv 1604.06174 (full), and Korthikanti et al., arXiv 2205.05198, section 5 (selective).
enum class Recompute : std::uint8_t {
  none,
  selective, ///< Attention only: its output and its log-sum-exp are not kept.
  full,      ///< The layer: only its input is kept.
};
#pragma GCC diagnostic pop

/// @brief "none", "selective" or "full".
[[nodiscard]] constexpr std::string_view name_of(Recompute kind) noexcept {
  constexpr std::array<std::string_view, 3> names{"none", "selective", "full"};
  return names[static_cast<std::size_t>(kind)];
}

/// @brief An operation of a layer whose results a backward pass may compute again.
enum class LayerOperation : std::uint8_t {
  attention,          ///< The scores and the weighted sums, without the products around them.
  norm,               ///< Both norms.
  activation,         ///< The operations between the products of the feed-forward or of experts.
  latent_projections, ///< Queries, keys and values out of the latents of latent attention.
  feed_forward,       ///< The dense feed-forward, its products included.
  shared_experts,     ///< The experts that every token passes.
  experts,            ///< All experts, including the exchanges of tokens.
  qkv_projections,    ///< The products that give queries, keys and values.
  output_projection,  ///< The product after attention, and the sum with the stream.
  up_projections      ///< The products before the activation of the dense feed-forward.
};
/// @brief How many operations there are.
inline constexpr int layer_operations = 10;

/// @brief The name of an operation, as used in lists: "attention", "norm", "act", "mla_up_proj", "mlp",
/// "shared_experts", "moe", "qkv_proj", "out_proj" or "up_proj".
[[nodiscard]] constexpr std::string_view name_of(LayerOperation operation) noexcept {
  constexpr std::array<std::string_view, layer_operations> names{
      "attention",      "norm", "act",      "mla_up_proj", "mlp",
      "shared_experts", "moe",  "qkv_proj", "out_proj",    "up_proj"};
  return names[static_cast<std::size_t>(operation)];
}

/// @brief The operations that a selective recomputation runs again; none for the usual ones.
struct RecomputedOperations {
  std::uint16_t bits = 0; ///< One for each LayerOperation, the first the lowest.

  constexpr RecomputedOperations() noexcept = default;
  constexpr RecomputedOperations(std::initializer_list<LayerOperation> operations) noexcept {
    for (const LayerOperation one : operations)
      bits = static_cast<std::uint16_t>(bits | 1U << static_cast<unsigned>(one));
  }
  constexpr void add(const RecomputedOperations& others) noexcept { bits |= others.bits; }
  constexpr void remove(const RecomputedOperations& others) noexcept { bits &= ~others.bits; }
  [[nodiscard]] constexpr bool has(LayerOperation operation) const noexcept {
    return (bits >> static_cast<unsigned>(operation) & 1U) != 0;
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return bits == 0; }
  friend constexpr bool operator==(const RecomputedOperations&, const RecomputedOperations&) = default;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
