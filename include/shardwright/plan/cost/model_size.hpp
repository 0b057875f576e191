// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A model's parameters and floating-point operations per token, from its dimensions.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/spec/model.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Numbers of parameters, by what shards them.
struct ModelSize {
  double attention_per_layer = 0;   ///< Matrices of attention.
  double state_space_per_layer = 0; ///< Matrices and vectors of a state space.
  double dense_per_layer = 0;       ///< Feed-forward matrices of a layer without experts.
  double one_expert = 0;            ///< Matrices of one routed expert.
  double shared_per_layer = 0;      ///< Shared experts and the router of a layer with experts.
  double vectors_per_layer = 0;     ///< Norms and biases.
  double embedding = 0;             ///< Token table and learned positions.
  double head = 0;                  ///< Output matrix; 0 if it is the token table.
  double prediction = 0; ///< Products and norms of modules of multi-token prediction, without their layers.
  double routed = 0;     ///< All routed experts of all layers.
  double total = 0;
  double active = 0; ///< Those of these that one token passes, embedding and head included.

  /// @brief Everything but the routed experts.
  [[nodiscard]] constexpr double dense() const noexcept { return total - routed; }
};

/// @brief Counts the parameters of a model.
///
/// GPT: 12 L h^2 (1 + 13/(12 h)) + (v + s) h, arXiv 2104.04473, equation 2; for other models, the matrices
/// described in the papers that the catalogue cites.
[[nodiscard]] constexpr ModelSize size_of(const ModelSpec& model) noexcept {
  const double h = model.hidden, a = model.heads, d = model.width_per_head();
  const double kv = model.key_value_heads, matrices = model.gated ? 3 : 2;
  ModelSize size;
  const bool alone = model.state_space.used(); // every layer has one branch
  const double norms = (model.biases ? 2 : 1) * (alone || model.parallel_block ? 1 : 2) * h; // gain and bias
  if (const LatentAttention& latent = model.latent; latent.used()) {
    size.attention_per_layer = (latent.query_rank > 0 ? latent.query_rank * (h + a * model.key_width())
                                                      : h * a * model.key_width()) +
                               h * (latent.key_value_rank + latent.rotary_width) +
                               latent.key_value_rank * a * (latent.plain_width + latent.value_width) +
                               a * latent.value_width * h;
    size.vectors_per_layer = norms + latent.query_rank + latent.key_value_rank;
  } else {
    size.attention_per_layer = h * d * (2 * a + 2 * kv);
    size.vectors_per_layer = norms + (model.biases ? d * (a + 2 * kv) + h : 0);
  }
  size.dense_per_layer = matrices * h * model.feed_forward;
  const double biases_of_feed_forward = model.biases ? (matrices - 1) * model.feed_forward + h : 0;
  const ExpertSpec& experts = model.experts;
  const double expert_layers = model.expert_layers(), dense_layers = model.dense_layers();
  if (experts.used()) {
    const double wide = model.routed_width();
    size.one_expert =
        matrices * wide * experts.width + (model.biases ? (matrices - 1) * experts.width + wide : 0);
    size.shared_per_layer = matrices * h * model.shared_expert_width() + h * experts.count +
                            2 * h * experts.latent_width; // down to the latent and up again
  }
  size.embedding = h * (model.vocabulary + model.position_rows);
  size.head = model.tied_embeddings ? 0 : h * model.vocabulary;
  size.prediction = model.prediction_layers * (2 * h * h + 3 * h); // norms of both inputs and of the result
  size.routed = expert_layers * experts.count * size.one_expert;
  if (const StateSpaceSpec& space = model.state_space; space.used()) {
    const double mixed = space.width() + 2.0 * space.groups * space.state; // the inputs of its convolution
    size.state_space_per_layer = h * (space.input_width() + space.width()) + mixed * (space.convolution + 1) +
                                 3.0 * space.heads + space.width();
  }
  const double outside =
      model.attention_layers() * size.attention_per_layer + model.stacked_layers() * size.vectors_per_layer +
      model.state_space.layers * size.state_space_per_layer +
      dense_layers * (size.dense_per_layer + biases_of_feed_forward) + expert_layers * size.shared_per_layer +
      size.embedding + size.head + size.prediction + (model.biases ? 2 * h : h);
  size.total = outside + size.routed;
  size.active = outside + expert_layers * experts.active * size.one_expert;
  return size;
}

/// @brief Tokens that a token attends to in a layer, averaged over the layers: the whole sequence, or half of
/// it if only the past counts; at most the window if there is one.
[[nodiscard]] constexpr double attended_tokens(const ModelSpec& model, double sequence,
                                               FlopsConvention convention) noexcept {
  const double share = convention == FlopsConvention::causal ? 0.5 : 1.0;
  if (model.window_layers == 0)
    return share * sequence;
  const double window = model.window > 0 && model.window < sequence ? model.window : sequence;
  // A window w over s tokens has w s - w^2/2 pairs with the past; counted without the mask, it has w keys for
  // each token.
  const double windowed = convention != FlopsConvention::causal ? window
                          : model.chunked                       ? window / 2
                                                                : window * (1 - 0.5 * window / sequence);
  const double all_layers = model.attention_layers(), full_layers = all_layers - model.window_layers;
  return (full_layers * share * sequence + model.window_layers * windowed) / all_layers;
}

namespace detail {

/// Operations in one token's forward pass for the scores of one layer and the weighted sum, per attended
/// token.
[[nodiscard]] constexpr double attention_flops_per_pair(const ModelSpec& model) noexcept {
  return 2.0 * model.heads * (model.key_width() + model.value_width());
}

/// Operations of one token's forward pass in the scan of a state space, as Megatron-LM counts them: 7 for
/// each element of the state.
[[nodiscard]] constexpr double scan_flops(const StateSpaceSpec& space) noexcept {
  return 7 * space.width() * space.state;
}

} // namespace detail

/// @brief Operations per token in a training step without recomputation: three times those of the forward
/// pass.
///
/// 6 (active matrices + v h) + 12 L a d s, arXiv 2205.05198, appendix A, in its general form; the causal
/// convention takes half of the last term. Each module of multi-token prediction computes its own logits.
[[nodiscard]] constexpr double flops_per_token(const ModelSpec& model, const ModelSize& size, double sequence,
                                               FlopsConvention convention) noexcept {
  const double expert_layers = model.expert_layers(), dense_layers = model.dense_layers();
  const double h = model.hidden, layers = model.attention_layers();
  const StateSpaceSpec& space = model.state_space;
  const double matrices =
      layers * size.attention_per_layer + dense_layers * size.dense_per_layer +
      expert_layers * (size.shared_per_layer + (model.gated ? 3.0 : 2.0) * model.routed_width() *
                                                   model.experts.width * model.experts.active) +
      space.layers * h * (space.input_width() + space.width()) +
      (1 + model.prediction_layers) * h * model.vocabulary + 2 * model.prediction_layers * h * h;
  return 6 * matrices + 3 * space.layers * detail::scan_flops(space) +
         3 * layers * detail::attention_flops_per_pair(model) * attended_tokens(model, sequence, convention);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
