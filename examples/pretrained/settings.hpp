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

namespace pretrained {

namespace sw = shardwright;

/// @brief Stretching of positions as Peng et al. (arXiv 2309.00071, section 3) define it: frequencies that
/// turn more than `fast` times within the original positions are kept, those that turn less than `slow` times
/// are divided by `factor`, and those between are blended by their number.
struct YarnScaling {
  double factor = 1;
  double fast = 32;
  double slow = 1;
  double positions = 4096;   ///< Of the sequences before the stretching.
  double mscale = 0;         ///< Of what turns; 0: none is given.
  double mscale_all = 0;     ///< Of all scores; 0: none is given.
  bool whole_numbers = true; ///< The bounds of the blend are rounded away from each other.

  /// @brief The angles per position, [rotary_width / 2].
  [[nodiscard]] std::vector<double> frequencies(std::int64_t rotary_width, double base) const;
  /// @brief Factor on cosines and sines.
  [[nodiscard]] double turned_factor() const;
  /// @brief Factor on all scores.
  [[nodiscard]] double score_factor() const;
};

/// @brief Sizes of multi-head latent attention (DeepSeek-AI, arXiv 2405.04434, section 2.1).
struct LatentSizes {
  std::int64_t query_rank = 0; ///< 0: queries are not compressed.
  std::int64_t key_value_rank = 0;
  std::int64_t plain_width = 0;  ///< Elements of a query or key that do not turn.
  std::int64_t rotary_width = 0; ///< Those that do, which a key has once for all heads.
  std::int64_t value_width = 0;
  bool interleaved = true; ///< Neighbours turn together, and not element i with i + rotary_width / 2.
  std::optional<YarnScaling> scaling{};
};

/// @brief The experts of a model, and how its tokens choose them.
struct ExpertSettings {
  std::int64_t count = 0; ///< 0 for one MLP of all tokens.
  std::int64_t chosen = 0;
  std::int64_t hidden = 0;        ///< Of each.
  std::int64_t shared_hidden = 0; ///< Of the MLP of all tokens beside them; 0: there is none.
  std::int64_t dense_layers = 0;  ///< First layers, which have none.
  bool sigmoid = false;           ///< Scores of the logits one by one, and a bias for the choice.
  bool sums_to_one = true;        ///< The gates of a token, before `scale`.
  double scale = 1;
  std::int64_t groups = 1;
  std::int64_t kept_groups = 1;
};

/// @brief Sizes and choices of a decoder of the Llama, Mistral, Qwen2, Qwen3, Mixtral or DeepSeek-V3 family.
struct Settings {
  std::string family; ///< As config.json calls it, such as "llama" or "deepseek_v3".
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_width = 0;
  std::int64_t hidden = 0; ///< Of the SwiGLU.
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0; ///< Tokens of a sequence, at most.
  double norm_epsilon = 0;
  double rope_base = 10000;
  std::optional<sw::RotaryScaling> rope_scaling;
  std::optional<LatentSizes> latent; ///< In place of the heads' own keys and values.
  bool tied_embedding = false;
  bool qkv_bias = false;
  bool out_bias = false;
  bool head_norms = false; ///< Of each head of queries and keys, before they turn.
  ExpertSettings experts;
  std::optional<std::int64_t> window; ///< Tokens that a query sees, its own among them.
  std::vector<std::int32_t> end_tokens;
  std::int64_t fp8_rows = 0, fp8_columns = 0; ///< Of the blocks of FP8 weights with one scale; 0: none.

  [[nodiscard]] bool has_experts(std::int64_t layer) const {
    return experts.count > 0 && layer >= experts.dense_layers;
  }
  /// @brief Elements that a head gives to the product behind attention.
  [[nodiscard]] std::int64_t value_width() const { return latent ? latent->value_width : head_width; }
};

/// @brief Whether weights in blocks of FP8 may be read, each widened to a number of the model.
enum class Fp8 : bool { refused, widened };

/// @brief Reads the text of a config.json.
/// @param subject the file, for messages
/// @throws sw::DataError naming the field that is missing, unknown, or says what this program cannot run.
[[nodiscard]] Settings parse_settings(std::string_view text, const std::string& subject,
                                      Fp8 fp8 = Fp8::refused);

/// @brief Reads `directory`/config.json, and the end tokens of generation_config.json where there is one.
/// @throws sw::DataError as parse_settings, or where the file cannot be read.
[[nodiscard]] Settings read_settings(const std::filesystem::path& directory, Fp8 fp8 = Fp8::refused);

/// @brief The text of a config.json of these settings, for weights that are not FP8.
/// @param element of the weights: "float32", "bfloat16" or "float16"
[[nodiscard]] std::string settings_text(const Settings& settings, const std::string& element = "float32");

} // namespace pretrained
