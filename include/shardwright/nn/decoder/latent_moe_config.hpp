// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sizes of a decoder with experts and, if they say so, latent attention.

#include <shardwright/core/error.hpp>
#include <shardwright/nn/attention/latent_sizes.hpp>
#include <shardwright/nn/decoder/moe_config.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Sizes of a decoder with experts whose attention is latent if `latent` is given (DeepSeek-V3, arXiv
/// 2412.19437), and grouped as in DecoderConfig if not.
///
/// Latent attention has as many key and value heads as heads, and `head_elements` is its rotary width.
struct LatentMoeConfig : MoeConfig {
  /// @brief The ranks and widths of latent attention; the other sizes are those of the decoder.
  std::optional<LatentAttentionSizes> latent{};
  std::vector<double> frequencies{}; ///< Angles per position of its rotated pairs; empty: from rope_base.
  double rotary_factor = 1;          ///< Factor on their cosines and sines.

  /// @brief All sizes of latent attention.
  [[nodiscard]] LatentAttentionSizes latent_sizes() const {
    LatentAttentionSizes out = latent.value();
    out.width = width;
    out.heads = heads;
    out.norm_epsilon = norm_epsilon;
    return out;
  }
  /// @brief Trained elements.
  [[nodiscard]] std::int64_t parameters() const {
    return MoeConfig::parameters() + (latent ? layers * (more_in_matrices() + latent->gains()) : 0);
  }
  /// @brief As in DecoderConfig, counting only the chosen experts of a token.
  [[nodiscard]] double flops_per_token() const {
    if (!latent)
      return MoeConfig::flops_per_token();
    const std::int64_t more_of_scores =
        heads * (latent->head_width() + latent->value_width - 2 * head_width()) * sequence;
    return MoeConfig::flops_per_token() +
           static_cast<double>(layers) * static_cast<double>(6 * more_in_matrices() + 3 * more_of_scores);
  }

private:
  /// Elements of a layer's matrices beyond those of grouped attention.
  [[nodiscard]] std::int64_t more_in_matrices() const {
    return latent_sizes().matrices() - width * (2 * heads + 2 * kv_heads) * head_width();
  }
};

/// @brief Checks the sizes of latent attention, if there are any.
/// @throws InvalidArgument naming the number and what to change.
inline void check_latent(const LatentMoeConfig& config) {
  if (!config.latent)
    return;
  const auto require = [](bool holds, const std::string& sentence) {
    if (!holds)
      throw InvalidArgument("LatentMoeConfig: " + sentence);
  };
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  const LatentAttentionSizes& sizes = *config.latent;
  for (const auto& [name, size] : {std::pair{"query_rank", sizes.query_rank},
                                   {"key_value_rank", sizes.key_value_rank},
                                   {"plain_width", sizes.plain_width},
                                   {"value_width", sizes.value_width}})
    require(size >= 1, std::string(name) + " must be at least 1, but it is " + text(size) + " (change it)");
  require(config.kv_heads == config.heads, "kv_heads must be the " + text(config.heads) +
                                               " heads, because no two share a key, but it is " +
                                               text(config.kv_heads) + " (set it to heads)");
  require(config.head_elements == sizes.rotary_width, "head_elements must be the rotary width, " +
                                                          text(sizes.rotary_width) + ", but it is " +
                                                          text(config.head_elements) + " (set it so)");
  require(config.frequencies.empty() ||
              static_cast<std::int64_t>(config.frequencies.size()) == sizes.rotary_width / 2,
          "there must be a frequency for each of the " + text(sizes.rotary_width / 2) +
              " rotated pairs, but there are " + std::to_string(config.frequencies.size()) + " (give " +
              text(sizes.rotary_width / 2) + " or none)");
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
