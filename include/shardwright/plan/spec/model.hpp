// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A transformer described by its dimensions: dense or mixture of experts, grouped or latent
/// attention.

#include <shardwright/core/config.hpp>

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
  int shared = 0;               ///< Experts that process every token.
  int shared_width = 0;         ///< Width of one shared expert; 0 takes `width`.
  int leading_dense_layers = 0; ///< First layers that have a dense feed-forward instead.
  int every = 1;                ///< Of the others, one in this many has experts.
  int groups = 0;               ///< The most groups that a token's experts are in; 0: no limit.
  int all_groups = 0;           ///< Number of groups; 0: one for each domain.
  int latent_width = 0;         ///< Width to which tokens are projected for the experts; 0 if they are not.

  [[nodiscard]] constexpr bool used() const noexcept { return count > 0; }
};

/// @brief Layers of a state space (Mamba-2, arXiv 2405.21060), in a hybrid model whose layers are each a
/// state space, attention, or a feed-forward (arXiv 2504.03624); any other model leaves `layers` 0.
struct StateSpaceSpec {
  int layers = 0;
  int attention_layers = 0; ///< Layers with attention; the remaining layers are feed-forwards.
  int heads = 0;
  int head_width = 0;
  int groups = 1;      ///< Of heads that share their inputs and outputs, B and C.
  int state = 0;       ///< Width of the state of one element.
  int convolution = 4; ///< Tokens that the convolution before it reads.

  [[nodiscard]] constexpr bool used() const noexcept { return layers > 0; }
  /// @brief Total width of all heads.
  [[nodiscard]] constexpr double width() const noexcept { return static_cast<double>(heads) * head_width; }
  /// @brief Width of its inputs: gates, values, B, C and a step for each head.
  [[nodiscard]] constexpr double input_width() const noexcept {
    return 2 * width() + 2.0 * groups * state + heads;
  }
};

/// @brief Copies of a token that are sent to experts, and the most domains that they go to.
struct TokenCopies {
  int experts = 0;
  int groups = 0;     ///< The most groups of experts that they go to; 0: no limit.
  int all_groups = 0; ///< Number of groups; 0: one per domain.
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
  int prediction_layers = 0;    ///< Modules of multi-token prediction (arXiv 2412.19437, section 2.2): each a
                                ///< layer like the last one, a product of 2 h x h, and the logits once more.
  LatentAttention latent{};
  ExpertSpec experts{};
  StateSpaceSpec state_space{};
  double published_parameters = 0;        ///< As its source states them; 0 if it does not.
  double published_active_parameters = 0; ///< Per token.
  std::string_view source{};              ///< Paper or model card of the figures.

  [[nodiscard]] constexpr int width_per_head() const noexcept {
    return head_width > 0 ? head_width : hidden / heads;
  }
  /// @brief Width per head of queries and keys, and of values.
  [[nodiscard]] constexpr int key_width() const noexcept {
    return latent.used() ? latent.plain_width + latent.rotary_width : width_per_head();
  }
  [[nodiscard]] constexpr int value_width() const noexcept {
    return latent.used() ? latent.value_width : width_per_head();
  }
  /// @brief Layers that a pipeline divides: those of the model and of multi-token prediction, which the last
  /// stage has, with fewer others.
  [[nodiscard]] constexpr int stacked_layers() const noexcept { return layers + prediction_layers; }
  /// @brief Of these, those with experts.
  [[nodiscard]] constexpr int expert_layers() const noexcept {
    if (!experts.used())
      return 0;
    const int others =
        state_space.used() ? state_space.layers + state_space.attention_layers : experts.leading_dense_layers;
    const int left = layers - others;
    return (experts.every == 1 ? left : left / experts.every) + prediction_layers;
  }
  /// @brief Of these, those with attention.
  [[nodiscard]] constexpr int attention_layers() const noexcept {
    return state_space.used() ? state_space.attention_layers + prediction_layers : stacked_layers();
  }
  /// @brief Feed-forwards of all layers; costs count each together with its share of attention and state
  /// spaces.
  [[nodiscard]] constexpr int feed_forwards() const noexcept {
    return state_space.used() ? stacked_layers() - state_space.layers - state_space.attention_layers
                              : stacked_layers();
  }
  /// @brief Of these, those without experts.
  [[nodiscard]] constexpr int dense_layers() const noexcept { return feed_forwards() - expert_layers(); }
  /// @brief Layers of attention, and of a state space, per feed-forward.
  [[nodiscard]] constexpr double attention_share() const noexcept {
    return state_space.used() ? static_cast<double>(attention_layers()) / feed_forwards() : 1;
  }
  [[nodiscard]] constexpr double state_space_share() const noexcept {
    return state_space.used() ? static_cast<double>(state_space.layers) / feed_forwards() : 0;
  }
  /// @brief Residual branches per feed-forward, relative to the two of an ordinary layer.
  [[nodiscard]] constexpr double branch_share() const noexcept {
    return (1 + attention_share() + state_space_share()) / 2;
  }
  /// @brief Width of the tokens that go to experts.
  [[nodiscard]] constexpr int routed_width() const noexcept {
    return experts.latent_width > 0 ? experts.latent_width : hidden;
  }
  /// @brief Width of all shared experts of a layer together.
  [[nodiscard]] constexpr int shared_expert_width() const noexcept {
    return experts.shared * (experts.shared_width > 0 ? experts.shared_width : experts.width);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
