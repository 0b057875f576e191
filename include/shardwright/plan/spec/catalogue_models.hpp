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

/// A decoder with rotary positions, gated feed-forwards and an output matrix of its own, but for what `other`
/// says.
[[nodiscard]] constexpr ModelSpec decoder(std::string_view name, int layers, int hidden, int heads,
                                          int key_value_heads, int feed_forward, int vocabulary,
                                          double parameters, std::string_view source,
                                          ModelSpec other = {}) noexcept {
  other.name = name;
  other.layers = layers;
  other.hidden = hidden;
  other.heads = heads;
  other.key_value_heads = key_value_heads;
  other.feed_forward = feed_forward;
  other.vocabulary = vocabulary;
  other.published_parameters = parameters;
  other.source = source;
  return other;
}
/// A GPT as Megatron-LM trains it.
[[nodiscard]] constexpr ModelSpec gpt(std::string_view name, int layers, int hidden, int heads,
                                      double parameters, std::string_view source) noexcept {
  return decoder(name, layers, hidden, heads, heads, 4 * hidden, 51200, parameters, source,
                 {.gated = false, .tied_embeddings = true, .position_rows = 2048, .biases = true});
}
/// DeepSeek-V3's layers with other heads, vocabulary and experts.
[[nodiscard]] constexpr ModelSpec latent(std::string_view name, int heads, int vocabulary, int predictions,
                                         double parameters, double active, std::string_view source,
                                         const ExpertSpec& experts) noexcept {
  return decoder(name, 61, 7168, heads, heads, 18432, vocabulary, parameters, source,
                 {.head_width = 128,
                  .prediction_layers = predictions,
                  .latent = {1536, 512, 128, 64, 128},
                  .experts = experts,
                  .published_active_parameters = active});
}
/// Nemotron 3: layers of state spaces, of attention and of experts.
[[nodiscard]] constexpr ModelSpec hybrid(std::string_view name, int layers, int hidden, int heads,
                                         int predictions, double parameters, std::string_view source,
                                         const ExpertSpec& experts,
                                         const StateSpaceSpec& state_space) noexcept {
  return decoder(name, layers, hidden, heads, 2, experts.width, 131072, parameters, source,
                 {.head_width = 128,
                  .gated = false,
                  .prediction_layers = predictions,
                  .experts = experts,
                  .state_space = state_space});
}

} // namespace detail

/// @brief All models of the catalogue.
///
/// Parameters are as given in the source, without modules of multi-token prediction; so are active
/// parameters, which are left out here if the source excludes the input embedding. Columns of a decoder are
/// layers, width, heads, heads of keys and values, feed-forward, vocabulary and parameters.
// clang-format off
inline constexpr auto model_catalogue = [] {
  using namespace detail;
  // One function: a table, with a row for each model.
  return std::to_array<ModelSpec>({
    gpt("gpt3-175b", 96, 12288, 96, 174.6e9,
        "arXiv 2104.04473, section 5.1 (174.6 billion); arXiv 2005.14165, table 2.1"),
    gpt("gpt-22b", 48, 6144, 64, 22e9, "arXiv 2205.05198, table 3"),
    gpt("gpt-145b", 80, 12288, 96, 145.6e9, "arXiv 2104.04473, table 1"),
    gpt("mt-nlg-530b", 105, 20480, 128, 529.6e9, "arXiv 2104.04473, table 1"),
    gpt("gpt-1t", 128, 25600, 160, 1008e9, "arXiv 2104.04473, table 1"),
    decoder("bloom-176b", 70, 14336, 112, 112, 57344, 250880, 176.247e9, "arXiv 2211.05100, table 3",
        {.gated = false, .tied_embeddings = true, .biases = true}),
    decoder("gpt-neox-20b", 44, 6144, 64, 64, 24576, 50432, 20.55e9, "arXiv 2204.06745, section 2",
        {.gated = false, .biases = true}),
    decoder("llama-65b", 80, 8192, 64, 64, 22016, 32000, 65.2e9, "arXiv 2302.13971, table 2"),
    decoder("llama-2-7b", 32, 4096, 32, 32, 11008, 32000, 6.74e9, "huggingface.co/meta-llama/Llama-2-7b"),
    decoder("llama-2-70b", 80, 8192, 64, 8, 28672, 32000, 68.98e9, "huggingface.co/meta-llama/Llama-2-70b"),
    decoder("llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256, 8.03e9,
        "arXiv 2407.21783, table 3; huggingface.co/meta-llama/Llama-3.1-8B"),
    decoder("llama-3.1-70b", 80, 8192, 64, 8, 28672, 128256, 70.6e9,
        "arXiv 2407.21783, table 3; huggingface.co/meta-llama/Llama-3.1-70B"),
    decoder("llama-3.1-405b", 126, 16384, 128, 8, 53248, 128256, 405.85e9,
        "arXiv 2407.21783, table 3; huggingface.co/meta-llama/Llama-3.1-405B"),
    decoder("nemotron-4-15b", 32, 6144, 48, 8, 24576, 256000, 15.6e9,
        "arXiv 2402.16819, table 1: 12.5 billion and 3.2 billion of embeddings", {.gated = false}),
    decoder("nemotron-4-340b", 96, 18432, 96, 8, 73728, 256000, 340.7e9,
        "arXiv 2406.11704, table 1: 331.3 billion and 9.4 billion of embeddings", {.gated = false}),
    decoder("mpt-7b", 32, 4096, 32, 32, 16384, 50368, 6.659e9,
        "github.com/mosaicml/llm-foundry, scripts/train/benchmarking",
        {.gated = false, .tied_embeddings = true}),
    decoder("mpt-30b", 48, 7168, 56, 56, 28672, 50368, 29.975e9,
        "github.com/mosaicml/llm-foundry, scripts/train/benchmarking",
        {.gated = false, .tied_embeddings = true}),
    decoder("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 46.7e9, "arXiv 2401.04088, section 2",
        {.experts = {.count = 8, .active = 2, .width = 14336}, .published_active_parameters = 12.9e9}),
    decoder("mixtral-8x22b", 56, 6144, 48, 8, 16384, 32768, 140.6e9,
        "mistral.ai/news/mixtral-8x22b; its model card",
        {.experts = {.count = 8, .active = 2, .width = 16384}, .published_active_parameters = 39.1e9}),
    decoder("qwen3-30b-a3b", 48, 2048, 32, 4, 6144, 151936, 30.5e9,
        "arXiv 2505.09388, table 2; its model card",
        {.head_width = 128, .experts = {.count = 128, .active = 8, .width = 768},
         .published_active_parameters = 3.35e9}),
    decoder("qwen3-235b-a22b", 94, 4096, 64, 4, 12288, 151936, 235.1e9,
        "arXiv 2505.09388, table 2; its model card",
        {.head_width = 128, .experts = {.count = 128, .active = 8, .width = 1536},
         .published_active_parameters = 22.2e9}),
    decoder("gpt-oss-120b", 36, 2880, 64, 8, 2880, 201088, 116.83e9, "arXiv 2508.10925, table 1",
        {.head_width = 64, .biases = true, .window = 128, .window_layers = 18,
         .experts = {.count = 128, .active = 4, .width = 2880}}),
    latent("deepseek-v3", 128, 129280, 1, 671.0e9, 37.6e9, "arXiv 2412.19437, section 4.2; its model card",
        {.count = 256, .active = 8, .width = 2048, .shared = 1, .leading_dense_layers = 3,
         .groups = 4, .all_groups = 8}),
    latent("kimi-k2", 64, 163840, 0, 1026e9, 32.9e9, "arXiv 2507.20534, table 2; its model card",
        {.count = 384, .active = 8, .width = 2048, .shared = 1, .leading_dense_layers = 1}),
    hybrid("nemotron-3-nano", 52, 2688, 32, 0, 31.6e9, "arXiv 2512.20848, section 2; its model card",
        {.count = 128, .active = 6, .width = 1856, .shared = 1, .shared_width = 3712},
        {.layers = 23, .attention_layers = 6, .heads = 64, .head_width = 64, .groups = 8, .state = 128}),
    hybrid("nemotron-3-super", 88, 4096, 32, 1, 120.6e9, "arXiv 2604.12374; its model card",
        {.count = 512, .active = 22, .width = 2688, .shared = 1, .shared_width = 5376, .latent_width = 1024},
        {.layers = 40, .attention_layers = 8, .heads = 128, .head_width = 64, .groups = 8, .state = 128}),
    hybrid("nemotron-3-ultra", 108, 8192, 64, 1, 550e9, "its technical report and its model card",
        {.count = 512, .active = 22, .width = 5120, .shared = 1, .shared_width = 10240, .latent_width = 2048},
        {.layers = 48, .attention_layers = 12, .heads = 256, .head_width = 64, .groups = 8, .state = 128}),
  });
}();
// clang-format on

} // namespace shardwright::inline SHARDWRIGHT_ABI
