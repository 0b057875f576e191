// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The settings of a published model, from its config.json.

#include <shardwright/nn/rotary_frequencies.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace generate {

namespace sw = shardwright;

/// @brief Sizes and choices of a decoder of the Llama, Mistral, Qwen2, Qwen3 or Mixtral family.
struct Settings {
  std::string family; ///< As config.json calls it: "llama", "mistral", "qwen2", "qwen3" or "mixtral".
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_width = 0;
  std::int64_t hidden = 0; ///< Of the SwiGLU, or of each expert's.
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0; ///< Tokens of a sequence, at most.
  double norm_epsilon = 0;
  double rope_base = 10000;
  std::optional<sw::RotaryScaling> rope_scaling;
  bool tied_embedding = false;
  bool qkv_bias = false;
  bool out_bias = false;
  bool head_norms = false;  ///< Of each head of queries and keys, before they turn.
  std::int64_t experts = 0; ///< 0 for one MLP of all tokens.
  std::int64_t chosen_experts = 0;
  std::optional<std::int64_t> window; ///< Tokens that a query sees, its own among them.
  std::vector<std::int32_t> end_tokens;
};

/// @brief Reads the text of a config.json.
/// @param subject the file, for messages
/// @throws sw::DataError naming the field that is missing, unknown, or says what this program cannot run.
[[nodiscard]] Settings parse_settings(std::string_view text, const std::string& subject);

/// @brief Reads `directory`/config.json, and the end tokens of generation_config.json where there is one.
/// @throws sw::DataError as parse_settings, or where the file cannot be read.
[[nodiscard]] Settings read_settings(const std::filesystem::path& directory);

/// @brief The text of a config.json of these settings.
[[nodiscard]] std::string settings_text(const Settings& settings);

} // namespace generate
