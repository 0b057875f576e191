// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The settings of a published model, from its config.json.

#include <shardwright/nn/attention/rotary_frequencies.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pretrained {

namespace sw = shardwright;

/// @brief Context extension (YaRN) as Peng et al. (arXiv 2309.00071, section 3) define it: frequencies with
/// more than `fast` rotations within the original positions are kept, those with fewer than `slow` are
/// divided by `factor`, and those between are interpolated by their index.
struct YarnScaling {
  double factor = 1;
  double fast = 32;
  double slow = 1;
  double positions = 4096;   ///< Of sequences before the extension.
  double mscale = 0;         ///< Of the rotary part; 0: not given.
  double mscale_all = 0;     ///< Of all scores; 0: not given.
  bool whole_numbers = true; ///< Round the bounds of the interpolation away from each other.

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
  std::int64_t plain_width = 0;  ///< Elements of a query or key that are not rotated.
  std::int64_t rotary_width = 0; ///< Elements that are rotated; in a key they are shared by all heads.
  std::int64_t value_width = 0;
  bool interleaved = true; ///< Rotates pairs of neighbours, not of elements i and i + rotary_width / 2.
  std::optional<YarnScaling> scaling{};
};

/// @brief The experts of a model, and how tokens choose them.
struct ExpertSettings {
  std::int64_t count = 0; ///< 0: one MLP for all tokens.
  std::int64_t chosen = 0;
  std::int64_t hidden = 0;        ///< Of each.
  std::int64_t shared_hidden = 0; ///< Of the shared MLP; 0: there is none.
  std::int64_t dense_layers = 0;  ///< Number of first layers, which have no experts.
  bool sigmoid = false;           ///< Scores are sigmoids of the logits, with a bias for the choice.
  bool sums_to_one = true;        ///< The gates of a token do, before `scale`.
  double scale = 1;
  std::int64_t groups = 1;
  std::int64_t kept_groups = 1;
};

/// @brief Sizes and options of a decoder of the Llama, Mistral, Qwen2, Qwen3, Mixtral or DeepSeek-V3 family.
struct Settings {
  std::string family; ///< As in config.json, such as "llama" or "deepseek_v3".
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_width = 0;
  std::int64_t hidden = 0; ///< Of the SwiGLU.
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0; ///< The most tokens of a sequence.
  double norm_epsilon = 0;
  double rope_base = 10000;
  std::optional<sw::RotaryScaling> rope_scaling;
  std::optional<LatentSizes> latent; ///< Instead of the heads' own keys and values.
  bool tied_embedding = false;
  bool qkv_bias = false;
  bool out_bias = false;
  bool head_norms = false; ///< Normalize each head of queries and keys before the rotation.
  ExpertSettings experts;
  std::optional<std::int64_t> window; ///< Tokens that a query attends to, including its own.
  std::vector<std::int32_t> end_tokens;
  std::int64_t fp8_rows = 0, fp8_columns = 0; ///< Size of the FP8 weight blocks that share a scale; 0: none.

  [[nodiscard]] bool has_experts(std::int64_t layer) const {
    return experts.count > 0 && layer >= experts.dense_layers;
  }
  /// @brief Elements per head of the attention's result.
  [[nodiscard]] std::int64_t value_width() const { return latent ? latent->value_width : head_width; }
};

/// @brief The treatment of FP8 weights: an error, or conversion of their blocks to the model's element type.
enum class Fp8 : bool { refused, widened };

/// @brief What a reader accepts beyond the settings that it knows.
struct Accepted {
  Fp8 fp8 = Fp8::refused;
  std::vector<std::string>
      fields; ///< Unknown ones that change nothing, such as "my_note" or "rope_scaling.my_note".
};

/// @brief Reads the text of a config.json. Fields that begin with an underscore, and those of transformers
/// that change nothing that the model computes, are ignored.
/// @param subject the file, for messages
/// @throws sw::DataError naming the field that is missing, unknown, or not supported by this program, or the
/// byte at which the text is not JSON.
[[nodiscard]] Settings parse_settings(std::string_view text, const std::string& subject,
                                      const Accepted& accepted = {});

/// @brief Reads `directory`/config.json, and the end tokens from generation_config.json if there is one.
/// @throws sw::DataError as parse_settings, or if the file cannot be read.
[[nodiscard]] Settings read_settings(const std::filesystem::path& directory, const Accepted& accepted = {});

/// @brief The text of a config.json with these settings, for weights that are not FP8.
/// @param element of the weights: "float32", "bfloat16" or "float16"
[[nodiscard]] std::string settings_text(const Settings& settings, const std::string& element = "float32");

} // namespace pretrained
