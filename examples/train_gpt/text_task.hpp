// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What train_gpt trains: a decoder on text, with experts or without.

#include "options.hpp"
#include "text_batches.hpp"

#include <shardwright/core/element.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/nn/attention/context.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/moe.hpp>
#include <shardwright/nn/layers/lora.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace train_gpt {

/// @brief True if a training is compiled for a second set of layouts, without sequence parallelism. Trainings
/// in low precision, with the ring or on devices are compiled for one set only; with tp=1 both sets are the
/// same.
template <class Element, class Context, class Target>
inline constexpr bool has_plain_layouts =
    !sw::is_narrow<Element> && !std::is_same_v<Context, sw::RingContext> && Target::host_accessible;

/// @brief Reads the settings of a published model's experts and of its latent attention.
inline void take_published(sw::MoeConfig& config, const pretrained::Settings& settings) {
  const pretrained::ExpertSettings& experts = settings.experts;
  config.shared_hidden = experts.shared_hidden;
  if (experts.sigmoid) {
    config.routing.scores = sw::RouterScores::sigmoid;
    config.routing.scale = experts.scale;
    config.routing.groups = experts.groups;
    config.routing.kept_groups = experts.kept_groups;
    config.routing.group_score = sw::GroupScore::two_largest;
    config.bias = sw::ExpertBiasOptions{.loaded = true}; // DeepSeek-V3 ended its training with rate 0
  }
  if (!settings.latent)
    return;
  const pretrained::LatentSizes& latent = *settings.latent;
  config.head_elements = latent.rotary_width;
  config.latent = sw::LatentAttentionSizes{.query_rank = latent.query_rank,
                                           .key_value_rank = latent.key_value_rank,
                                           .plain_width = latent.plain_width,
                                           .rotary_width = latent.rotary_width,
                                           .value_width = latent.value_width};
  if (!latent.scaling)
    return;
  config.frequencies = latent.scaling->frequencies(latent.rotary_width, settings.rope_base);
  config.rotary_factor = latent.scaling->turned_factor();
  config.latent->score_factor = latent.scaling->score_factor();
}

template <class Config> [[nodiscard]] Config config_of(const Options& options) {
  Config config;
  config.layers = options.size.layers;
  config.width = options.size.d_model;
  config.heads = options.size.heads;
  config.kv_heads = options.size.kv_heads;
  config.hidden = options.size.hidden;
  config.vocabulary = options.size.vocabulary;
  config.sequence = options.size.sequence;
  config.tied_embedding = options.tied;
  config.dropout = options.dropout;
  config.recompute = options.recompute;
  if (options.published) {
    config.norm_epsilon = options.published->norm_epsilon;
    config.rope_base = options.published->rope_base;
    config.rope_scaling = options.published->rope_scaling;
    config.head_elements = options.published->head_width;
    config.qkv_bias = options.published->qkv_bias;
    config.head_norms = options.published->head_norms;
  }
  if constexpr (std::is_base_of_v<sw::MoeConfig, Config>) {
    config.dense_layers = options.size.dense_layers;
    config.experts = options.size.experts;
    config.expert_hidden = options.size.expert_hidden;
    config.routing = sw::RouterOptions{.chosen = options.size.chosen};
    if (options.published) {
      take_published(config, *options.published);
    } else {
      config.shared_hidden = options.size.expert_hidden;
      config.routing.scores = sw::RouterScores::sigmoid;
      if (options.balance.empty()) {
        config.bias = sw::ExpertBiasOptions{.rate = 0.001};
        config.balance = 0.0001;
      }
    }
    if (options.balance == "bias") {
      config.bias.rate = 0.001;
    } else if (!options.balance.empty()) {
      config.balance = 0.01;
      config.balance_over = options.balance == "sequence"     ? sw::BalanceOver::sequence
                            : options.balance == "microbatch" ? sw::BalanceOver::microbatch
                            : options.balance == "global"     ? sw::BalanceOver::global_batch
                                                              : sw::BalanceOver::previous_batch;
    }
    config.capacity = options.capacity;
    config.batch_sequences = options.rows();
  }
  return config;
}

template <class Layouts, class Element, class Target, bool experts, bool adapts> struct TextModel {
  using type = sw::Decoder<Layouts, Element, Target>;
};
template <class Layouts, class Element, class Target>
struct TextModel<Layouts, Element, Target, true, false> {
  using type = sw::MoeDecoder<Layouts, Element, Target>;
};
template <class Layouts, class Element, class Target, bool experts>
struct TextModel<Layouts, Element, Target, experts, true> {
  using type = sw::Adapted<typename TextModel<Layouts, Element, Target, experts, false>::type>;
};

/// @brief A decoder, or one with experts if its layouts have owners of experts.
template <class Layouts, class Element, class AnyTarget, bool with_adapters = false> struct TextTask {
  using Order = typename Layouts::Order;
  using Rows = typename Layouts::Rows;
  using Options = train_gpt::Options;
  using Source = const sw::TokenRows*;
  template <class Parts> using Batches = TextBatches<Parts>;
  static constexpr bool has_experts = requires { typename Layouts::Owners; };
  static constexpr bool every_step = false;
  /// Whether adapters of frozen weights are trained.
  static constexpr bool adapts = with_adapters;
  using Model = typename TextModel<Layouts, Element, AnyTarget, has_experts, adapts>::type;

  [[nodiscard]] static typename Model::Config config(const Options& options) {
    auto out = config_of<typename Model::Config>(options);
    if constexpr (adapts)
      out.adapters = {
          .rank = options.lora->rank,
          .alpha = options.lora->alpha,
          .rank_stabilized = options.lora->rank_stabilized,
          .dropout = options.lora->dropout,
          .initial = options.lora->kaiming ? sw::LoraInitial::kaiming_uniform : sw::LoraInitial::normal,
          .tables = !options.published->tied_embedding,
          .matches = [settings = *options.published, targets = options.lora->targets](std::string_view path) {
            const std::string module = pretrained::adapted_module(settings, path);
            return std::find(targets.begin(), targets.end(), module) != targets.end();
          }};
    return out;
  }
  [[nodiscard]] static std::uint64_t data_hash(Source data) { return data->hash(); }
  [[nodiscard]] static std::string describe(const Options&, Source data) { return data->description(); }
  [[nodiscard]] static std::string_view unit(const Options& options) {
    return options.published ? "token" : "byte";
  }
  [[nodiscard]] static trainer::InitialWeights initial_weights(const Options& options) {
    return published_weights(options);
  }
};

} // namespace train_gpt
