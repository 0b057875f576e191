// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A transformer described by its dimensions: dense or mixture of experts, grouped or latent
/// attention.

#include <shardwright/core/config.hpp>

#include <cstdint>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Multi-head latent attention: queries, and keys and values together, go through low-rank
/// projections.
///
/// DeepSeek-V2, arXiv 2405.04434, section 2.1. For a model without it, `key_value_rank` stays 0.
struct LatentAttention {
  int query_rank = 0;     ///< Rank of the query compression; 0 projects queries directly.
  int key_value_rank = 0; ///< Rank of the joint key and value compression.
  int plain_width = 0;    ///< Width per head of queries and keys without position.
  int rotary_width = 0;   ///< Width per head of queries, and of the one shared key, with position.
  int value_width = 0;    ///< Width per head of values.

  [[nodiscard]] constexpr bool used() const noexcept { return key_value_rank > 0; }
};

/// @brief The experts of a layer; for a dense model, `count` stays 0.
struct ExpertSpec {
  int count = 0;                ///< Routed experts per layer.
  int active = 0;               ///< Routed experts per token.
  int width = 0;                ///< Feed-forward width of one routed expert.
  int shared = 0;               ///< Experts that every token passes.
  int shared_width = 0;         ///< Width of one shared expert; 0 takes `width`.
  int leading_dense_layers = 0; ///< First layers that have a dense feed-forward instead.
  int every = 1;                ///< Of the others, one in so many has experts.
  int groups = 0;               ///< Groups of experts that a token's lie in at most; 0 does not limit them.
  int all_groups = 0;           ///< Groups that there are; 0 takes one for each domain.

  [[nodiscard]] constexpr bool used() const noexcept { return count > 0; }
};

/// @brief Copies of a token that are sent to experts, and the most domains that they go to.
struct TokenCopies {
  int experts = 0;
  int groups = 0;     ///< Of experts, that they go to at most; 0 does not limit them.
  int all_groups = 0; ///< Groups that there are; 0 takes one for each domain.
  bool merged = true; ///< Whether a domain receives one copy for all of its experts.

  constexpr TokenCopies(int to_experts, int to_groups = 0, int of_groups = 0,
                        bool one_per_domain = true) noexcept // NOLINT: as many, wherever they go
      : experts(to_experts), groups(to_groups), all_groups(of_groups), merged(one_per_domain) {}

  /// @brief Of `domains` that hold all experts, the most that a token's copies go to.
  [[nodiscard]] constexpr double reached_of(double domains) const noexcept {
    return groups == 0                              ? domains
           : all_groups > 0 && domains > all_groups ? groups * domains / all_groups
                                                    : groups;
  }
};

/// @brief Dimensions of a decoder-only transformer; one value per published model.
struct ModelSpec {
  std::string_view name{};
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int key_value_heads = 0; ///< Equal to heads without grouped queries.
  int head_width = 0;      ///< 0 takes hidden / heads.
  int feed_forward = 0;    ///< Width of the dense feed-forward.
  bool gated = true;       ///< Three feed-forward matrices (SwiGLU) rather than two.
  int vocabulary = 0;
  bool tied_embeddings = false; ///< The output matrix is the embedding.
  int position_rows = 0;        ///< Rows of a learned table of positions; 0 for rotary ones.
  bool biases = false;          ///< Linear layers and norms have biases.
  int window = 0;               ///< Tokens that a layer with a sliding window attends to; 0 if none has.
  int window_layers = 0;        ///< Layers with a sliding window.
  bool chunked = false;         ///< These layers attend within chunks of that many tokens instead.
  bool parallel_block = false;  ///< Attention and feed-forward read the same norm and are summed once.
  LatentAttention latent{};
  ExpertSpec experts{};
  double published_parameters = 0;        ///< As its source states them; 0 if it does not.
  double published_active_parameters = 0; ///< Per token.
  std::string_view source{};              ///< Paper or model card of the figures.

  [[nodiscard]] constexpr int width_per_head() const noexcept {
    return head_width > 0 ? head_width : hidden / heads;
  }
  [[nodiscard]] constexpr int expert_layers() const noexcept {
    return experts.used() ? (layers - experts.leading_dense_layers) / experts.every : 0;
  }
  /// @brief Width of all shared experts of a layer together.
  [[nodiscard]] constexpr int shared_expert_width() const noexcept {
    return experts.shared * (experts.shared_width > 0 ? experts.shared_width : experts.width);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
