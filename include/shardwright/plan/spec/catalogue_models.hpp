// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Published models by their dimensions, each with its source.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/model.hpp>

#include <array>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A GPT as Megatron-LM trains it.
[[nodiscard]] constexpr ModelSpec gpt(std::string_view name, int layers, int hidden, int heads,
                                      double parameters, std::string_view source) {
  return {.name = name,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .key_value_heads = heads,
          .feed_forward = 4 * hidden,
          .gated = false,
          .vocabulary = 51200,
          .tied_embeddings = true,
          .position_rows = 2048,
          .biases = true,
          .published_parameters = parameters,
          .source = source};
}
/// A decoder with rotary positions, gated feed-forwards and an output matrix of its own.
[[nodiscard]] constexpr ModelSpec llama(std::string_view name, int layers, int hidden, int heads,
                                        int key_value_heads, int feed_forward, int vocabulary,
                                        double parameters, std::string_view source) {
  return {.name = name,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .key_value_heads = key_value_heads,
          .feed_forward = feed_forward,
          .vocabulary = vocabulary,
          .published_parameters = parameters,
          .source = source};
}

/// The same with two matrices in a feed-forward.
[[nodiscard]] constexpr ModelSpec ungated(ModelSpec model, bool tied_embeddings) {
  model.gated = false;
  model.tied_embeddings = tied_embeddings;
  return model;
}
/// The same with experts in every layer.
[[nodiscard]] constexpr ModelSpec with_experts(ModelSpec model, const ExpertSpec& experts,
                                               double active_parameters, int head_width = 0) {
  model.experts = experts;
  model.published_active_parameters = active_parameters;
  model.head_width = head_width;
  return model;
}

[[nodiscard]] constexpr ModelSpec with_biases(ModelSpec model) {
  model.biases = true;
  return model;
}
/// DeepSeek-V3's layers with other heads, vocabulary and experts.
[[nodiscard]] constexpr ModelSpec latent(std::string_view name, int heads, int vocabulary, int predictions,
                                         const ExpertSpec& experts, double parameters, double active,
                                         std::string_view source) {
  ModelSpec model = with_experts(llama(name, 61, 7168, heads, heads, 18432, vocabulary, parameters, source),
                                 experts, active, 128);
  model.prediction_layers = predictions;
  model.latent = {1536, 512, 128, 64, 128};
  return model;
}
/// Nemotron 3: layers of state spaces, of attention and of experts.
[[nodiscard]] constexpr ModelSpec hybrid(std::string_view name, int layers, int hidden, int heads,
                                         int predictions, const ExpertSpec& experts,
                                         const StateSpaceSpec& state_space, double parameters,
                                         std::string_view source) {
  ModelSpec model = with_experts(
      ungated(llama(name, layers, hidden, heads, 2, experts.width, 131072, parameters, source), false),
      experts, 0, 128);
  model.prediction_layers = predictions;
  model.state_space = state_space;
  return model;
}

} // namespace detail

/// @brief All models of the catalogue.
///
/// Parameters are as given in the source, without modules of multi-token prediction; so are active
/// parameters, which are left out here if the source excludes the input embedding.
inline constexpr std::array<ModelSpec, 27> model_catalogue{{
    detail::gpt("gpt3-175b", 96, 12288, 96, 174.6e9,
                "arXiv 2104.04473, section 5.1 (174.6 billion); arXiv 2005.14165, table 2.1"),
    detail::gpt("gpt-22b", 48, 6144, 64, 22e9, "arXiv 2205.05198, table 3"),
    detail::gpt("gpt-145b", 80, 12288, 96, 145.6e9, "arXiv 2104.04473, table 1"),
    detail::gpt("mt-nlg-530b", 105, 20480, 128, 529.6e9, "arXiv 2104.04473, table 1"),
    detail::gpt("gpt-1t", 128, 25600, 160, 1008e9, "arXiv 2104.04473, table 1"),
    detail::with_biases(detail::ungated(detail::llama("bloom-176b", 70, 14336, 112, 112, 57344, 250880,
                                                      176.247e9, "arXiv 2211.05100, table 3"),
                                        true)),
    detail::with_biases(detail::ungated(
        detail::llama("gpt-neox-20b", 44, 6144, 64, 64, 24576, 50432, 20.55e9, "arXiv 2204.06745, section 2"),
        false)),
    detail::llama("llama-65b", 80, 8192, 64, 64, 22016, 32000, 65.2e9, "arXiv 2302.13971, table 2"),
    detail::llama("llama-2-7b", 32, 4096, 32, 32, 11008, 32000, 6.74e9,
                  "huggingface.co/meta-llama/Llama-2-7b"),
    detail::llama("llama-2-70b", 80, 8192, 64, 8, 28672, 32000, 68.98e9,
                  "huggingface.co/meta-llama/Llama-2-70b"),
    detail::llama("llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256, 8.03e9,
                  "arXiv 2407.21783, table 3; huggingface.co/meta-llama/Llama-3.1-8B"),
    detail::llama("llama-3.1-70b", 80, 8192, 64, 8, 28672, 128256, 70.6e9,
                  "arXiv 2407.21783, table 3; huggingface.co/meta-llama/Llama-3.1-70B"),
    detail::llama("llama-3.1-405b", 126, 16384, 128, 8, 53248, 128256, 405.85e9,
                  "arXiv 2407.21783, table 3; huggingface.co/meta-llama/Llama-3.1-405B"),
    detail::ungated(detail::llama("nemotron-4-15b", 32, 6144, 48, 8, 24576, 256000, 15.6e9,
                                  "arXiv 2402.16819, table 1: 12.5 billion and 3.2 billion of embeddings"),
                    false),
    detail::ungated(detail::llama("nemotron-4-340b", 96, 18432, 96, 8, 73728, 256000, 340.7e9,
                                  "arXiv 2406.11704, table 1: 331.3 billion and 9.4 billion of embeddings"),
                    false),
    detail::ungated(detail::llama("mpt-7b", 32, 4096, 32, 32, 16384, 50368, 6.659e9,
                                  "github.com/mosaicml/llm-foundry, scripts/train/benchmarking"),
                    true),
    detail::ungated(detail::llama("mpt-30b", 48, 7168, 56, 56, 28672, 50368, 29.975e9,
                                  "github.com/mosaicml/llm-foundry, scripts/train/benchmarking"),
                    true),
    detail::with_experts(
        detail::llama("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 46.7e9, "arXiv 2401.04088, section 2"),
        {.count = 8, .active = 2, .width = 14336}, 12.9e9),
    detail::with_experts(detail::llama("mixtral-8x22b", 56, 6144, 48, 8, 16384, 32768, 140.6e9,
                                       "mistral.ai/news/mixtral-8x22b; its model card"),
                         {.count = 8, .active = 2, .width = 16384}, 39.1e9),
    detail::with_experts(detail::llama("qwen3-30b-a3b", 48, 2048, 32, 4, 6144, 151936, 30.5e9,
                                       "arXiv 2505.09388, table 2; its model card"),
                         {.count = 128, .active = 8, .width = 768}, 3.35e9, 128),
    detail::with_experts(detail::llama("qwen3-235b-a22b", 94, 4096, 64, 4, 12288, 151936, 235.1e9,
                                       "arXiv 2505.09388, table 2; its model card"),
                         {.count = 128, .active = 8, .width = 1536}, 22.2e9, 128),
    {.name = "gpt-oss-120b",
     .layers = 36,
     .hidden = 2880,
     .heads = 64,
     .key_value_heads = 8,
     .head_width = 64,
     .feed_forward = 2880,
     .vocabulary = 201088,
     .biases = true,
     .window = 128,
     .window_layers = 18,
     .experts = {.count = 128, .active = 4, .width = 2880},
     .published_parameters = 116.83e9,
     .source = "arXiv 2508.10925, table 1"},
    detail::latent("deepseek-v3", 128, 129280, 1,
                   {.count = 256,
                    .active = 8,
                    .width = 2048,
                    .shared = 1,
                    .leading_dense_layers = 3,
                    .groups = 4,
                    .all_groups = 8},
                   671.0e9, 37.6e9, "arXiv 2412.19437, section 4.2; its model card"),
    detail::latent("kimi-k2", 64, 163840, 0,
                   {.count = 384, .active = 8, .width = 2048, .shared = 1, .leading_dense_layers = 1}, 1026e9,
                   32.9e9, "arXiv 2507.20534, table 2; its model card"),
    detail::hybrid(
        "nemotron-3-nano", 52, 2688, 32, 0,
        {.count = 128, .active = 6, .width = 1856, .shared = 1, .shared_width = 3712},
        {.layers = 23, .attention_layers = 6, .heads = 64, .head_width = 64, .groups = 8, .state = 128},
        31.6e9, "arXiv 2512.20848, section 2; its model card"),
    detail::hybrid(
        "nemotron-3-super", 88, 4096, 32, 1,
        {.count = 512, .active = 22, .width = 2688, .shared = 1, .shared_width = 5376, .latent_width = 1024},
        {.layers = 40, .attention_layers = 8, .heads = 128, .head_width = 64, .groups = 8, .state = 128},
        120.6e9, "arXiv 2604.12374; its model card"),
    detail::hybrid(
        "nemotron-3-ultra", 108, 8192, 64, 1,
        {.count = 512, .active = 22, .width = 5120, .shared = 1, .shared_width = 10240, .latent_width = 2048},
        {.layers = 48, .attention_layers = 12, .heads = 256, .head_width = 64, .groups = 8, .state = 128},
        550e9, "its technical report and its model card"),
}};

} // namespace shardwright::inline SHARDWRIGHT_ABI
