// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sizes of a decoder with experts, and checks of their consistency.

#include <shardwright/core/error.hpp>
#include <shardwright/nn/attention/latent_sizes.hpp>
#include <shardwright/nn/decoder/config.hpp>
#include <shardwright/nn/experts/router_options.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The tokens over which the balance loss of a decoder with experts is taken.
enum class BalanceOver : std::uint8_t {
  sequence,      ///< Each sequence by itself: balance_loss<EachSequence>.
  microbatch,    ///< A microbatch of all ranks: balance_loss<WholeMicrobatch>.
  global_batch,  ///< All microbatches of a step: GlobalBalance, which not every schedule supports.
  previous_batch ///< The counts of the step before: stale_balance_loss.
};

/// @brief Sizes of a decoder whose layers, after the first dense ones, have routed and optionally shared
/// experts instead of the SwiGLU (DeepSeek-V3, arXiv 2412.19437; Mixtral, arXiv 2401.04088), and whose
/// attention is latent if `latent` is given.
///
/// Latent attention has as many key and value heads as heads, and `head_elements` is its rotary width.
struct MoeConfig : DecoderConfig {
  std::int64_t dense_layers = 0;    ///< First layers, whose feed-forward part is a SwiGLU of `hidden`.
  std::int64_t experts = 8;         ///< Routed experts of each other layer.
  std::int64_t expert_hidden = 128; ///< Inner width of each of them.
  std::int64_t shared_hidden = 0; ///< Total inner width of the shared experts of a layer; 0: there are none.
  RouterOptions routing{.chosen = 2};
  ExpertBiasOptions bias{}; ///< Of the choice; by default there is none.
  double balance = 0;       ///< Coefficient of the balance loss; 0 for none.
  BalanceOver balance_over = BalanceOver::sequence;
  double z_loss = 0;                ///< Coefficient of the router's z-loss; 0 for none.
  double capacity = 0;              ///< Factor of within_capacity(); 0 drops no choice.
  std::int64_t batch_sequences = 0; ///< Maximum number of sequences in a microbatch, over all ranks.
  double room = 0; ///< Rows for which a rank has room, relative to an even share; 0: the worst case.
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
    return DecoderConfig::parameters() + (layers - dense_layers) * (in_layer(experts) - 3 * width * hidden) +
           (latent ? layers * (more_in_matrices() + latent->gains()) : 0);
  }
  /// @brief As in DecoderConfig, counting only the chosen experts of a token.
  [[nodiscard]] double flops_per_token(int per_element = 6) const {
    const double grouped = DecoderConfig::flops_per_token(per_element) +
                           per_element * static_cast<double>((layers - dense_layers) *
                                                             (in_layer(routing.chosen) - 3 * width * hidden));
    if (!latent)
      return grouped;
    const std::int64_t more_of_scores =
        heads * (latent->head_width() + latent->value_width - 2 * head_width()) * sequence;
    return grouped + static_cast<double>(layers) *
                         static_cast<double>(per_element * more_in_matrices() + 3 * more_of_scores);
  }

private:
  /// Elements of a layer's latent attention beyond those of grouped attention.
  [[nodiscard]] std::int64_t more_in_matrices() const {
    return latent_sizes().matrices() - width * (2 * heads + 2 * kv_heads) * head_width();
  }
  /// Elements of router, shared experts and `count` experts.
  [[nodiscard]] std::int64_t in_layer(std::int64_t count) const {
    return width * (experts + 3 * shared_hidden + 3 * count * expert_hidden);
  }
};

/// @brief The largest number of rows that an owner rank may receive in a layer.
/// @param owners number of ranks that own experts
/// @param sharers those among them that split the batch
/// @param row_ranks ranks that split the batch
/// @param column_ranks other ranks that split sequences but own no experts
[[nodiscard]] inline std::int64_t most_expert_rows(const MoeConfig& config, std::int64_t owners,
                                                   std::int64_t sharers, std::int64_t row_ranks,
                                                   std::int64_t column_ranks) {
  const auto parts = [](std::int64_t number, std::int64_t by) { return (number + by - 1) / by; };
  const std::int64_t tokens =
      sharers * parts(config.batch_sequences, row_ranks) * parts(config.sequence, column_ranks);
  const std::int64_t all = tokens * std::min(config.routing.chosen, parts(config.experts, owners));
  if (config.room == 0)
    return all;
  const double even = static_cast<double>(tokens * config.routing.chosen) / static_cast<double>(owners);
  return std::min(all, static_cast<std::int64_t>(std::ceil(config.room * even)));
}

/// @brief Checks the sizes that a decoder with experts has beyond DecoderConfig; routers check their options.
/// @throws InvalidArgument naming the number and what to change.
inline void check_moe(const MoeConfig& config) {
  const auto require = [](bool holds, const std::string& sentence) {
    if (!holds)
      throw InvalidArgument("MoeConfig: " + sentence);
  };
  require(config.dense_layers >= 0 && config.dense_layers < config.layers,
          "dense_layers must leave at least one of the " + std::to_string(config.layers) +
              " layers with experts, but it is " + std::to_string(config.dense_layers) +
              " (lower it, or take a Decoder without experts)");
  require(config.experts >= 1 && config.expert_hidden >= 1 && config.shared_hidden >= 0,
          "experts and expert_hidden must be at least 1 and shared_hidden at least 0, but they are " +
              std::to_string(config.experts) + ", " + std::to_string(config.expert_hidden) + " and " +
              std::to_string(config.shared_hidden) + " (change them)");
  require(config.batch_sequences >= 1,
          "batch_sequences must be at least 1, as rows that experts receive are limited by it, but it is " +
              std::to_string(config.batch_sequences) + " (set it to the sequences of a microbatch)");
  require(config.balance >= 0 && config.z_loss >= 0 && config.capacity >= 0 && config.room >= 0,
          "balance, z_loss, capacity and room must not be negative (0 turns each of them off)");
  if (!config.latent)
    return;
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
