// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sizes of a Llama-style decoder, and checks that they are consistent with one another and a
/// mesh.

#include <shardwright/core/error.hpp>
#include <shardwright/nn/attention/context.hpp>
#include <shardwright/nn/attention/rotary_frequencies.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Sizes of a decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU (Touvron et al.,
/// arXiv 2302.13971; Ainslie et al., arXiv 2305.13245).
struct DecoderConfig {
  std::int64_t layers = 4;
  std::int64_t width = 128;       ///< d_model, elements of the residual stream per token.
  std::int64_t heads = 4;         ///< Query heads.
  std::int64_t kv_heads = 4;      ///< Key and value heads; each serves heads / kv_heads query heads.
  std::int64_t head_elements = 0; ///< Width of a head; 0: width / heads.
  bool qkv_bias = false;          ///< Adds biases to queries, keys and values (Qwen2, arXiv 2407.10671).
  bool head_norms = false;        ///< Normalises each head of queries and keys (Qwen3, arXiv 2505.09388).
  std::int64_t hidden = 384;      ///< Inner width of the SwiGLU.
  std::int64_t vocabulary = 256;
  std::int64_t sequence = 128; ///< Tokens per sequence, at most.
  bool tied_embedding = false; ///< The output table is the input table.
  double norm_epsilon = 1e-5;
  double rope_base = 10000;                    ///< Su et al., arXiv 2104.09864, equation 15.
  std::optional<RotaryScaling> rope_scaling{}; ///< For positions beyond the original training context.
  double initial_deviation = 0.02;
  double dropout = 0;        ///< Applied in training to the output of attention and MLP.
  Recomputation recompute{}; ///< The parts of layers that the backward pass recomputes.

  [[nodiscard]] std::int64_t head_width() const { return head_elements > 0 ? head_elements : width / heads; }
  /// @brief Trained elements.
  [[nodiscard]] std::int64_t parameters() const {
    const std::int64_t attention =
        width * (heads + 2 * kv_heads) * head_width() + heads * head_width() * width;
    const std::int64_t layer = attention + 3 * width * hidden + vectors();
    return layers * layer + width + (tied_embedding ? 1 : 2) * vocabulary * width;
  }
  /// @brief Floating-point operations of the matrix products of one token's forward and backward pass: 6 per
  /// element of each matrix, and 12 * width * keys per layer for causal attention over `keys` = sequence / 2
  /// on average.
  /// @param per_element 4 in place of 6 for frozen matrices, which have no gradients
  [[nodiscard]] double flops_per_token(int per_element = 6) const {
    const double matrices = static_cast<double>(parameters() - layers * vectors() - width -
                                                (tied_embedding ? 0 : vocabulary * width));
    return per_element * matrices + 6.0 * static_cast<double>(layers * heads * head_width() * sequence);
  }

private:
  /// Elements of a layer that are in no matrix.
  [[nodiscard]] std::int64_t vectors() const {
    return 2 * width + (qkv_bias ? (heads + 2 * kv_heads) * head_width() : 0) +
           (head_norms ? 2 * head_width() : 0);
  }
};

/// @brief Checks the sizes against one another and against the tensor and context parallel extents.
/// @throws InvalidArgument naming both numbers and what to change.
inline void check_decoder(const DecoderConfig& config, std::int64_t tensor_ranks, bool sequence_parallel,
                          const ContextExtents& context = {}) {
  const auto fail = [](const std::string& sentence) { throw InvalidArgument("Decoder: " + sentence); };
  const auto positive = [&](std::int64_t value, const char* name) {
    if (value < 1)
      fail(std::string(name) + " must be at least 1, but is " + std::to_string(value));
  };
  positive(config.layers, "layers");
  positive(config.width, "width");
  positive(config.heads, "heads");
  positive(config.kv_heads, "kv_heads");
  positive(config.hidden, "hidden");
  positive(config.vocabulary, "vocabulary");
  positive(config.sequence, "sequence");
  const auto divides = [&](std::int64_t number, const char* name, std::int64_t by, const char* what,
                           const char* fix) {
    if (number % by != 0) {
      fail(std::string(name) + " " + std::to_string(number) + " must be a multiple of " + what + " " +
           std::to_string(by) + " (" + fix + ")");
    }
  };
  if (config.head_elements == 0)
    divides(config.width, "width", config.heads, "heads", "change one of them");
  else
    positive(config.head_elements, "head_elements");
  divides(config.heads, "heads", config.kv_heads, "kv_heads", "change one of them");
  if (!(config.dropout >= 0 && config.dropout < 1))
    fail("dropout must be at least 0 and below 1, but is " + std::to_string(config.dropout) +
         " (it is the share of elements that becomes zero)");
  if (config.head_width() % 2 != 0) {
    fail((config.head_elements == 0 ? "width / heads = " : "head_elements = ") +
         std::to_string(config.head_width()) +
         " must be even for rotary positions (change width or heads, or head_elements)");
  }
  divides(
      config.kv_heads, "kv_heads", tensor_ranks, "the tensor-parallel ranks, tp =",
      "use fewer tensor-parallel ranks, or split tp into two axes and shard the key and value heads over one of them");
  divides(config.sequence, "sequence", context.sequence_divisor,
          context.sequence_divisor == context.ranks
              ? "the context-parallel ranks, cp ="
              : "twice the context-parallel ranks, two chunks for each, 2 cp =",
          "change the sequence length");
  divides(config.kv_heads, "kv_heads", tensor_ranks * context.head_ranks,
          "the tensor times context-parallel ranks, tp * cp =",
          "use fewer of them, or RingContext, which does not split the heads over cp");
  if (sequence_parallel) {
    divides(config.sequence / context.ranks, context.ranks == 1 ? "sequence" : "sequence of a context rank",
            tensor_ranks,
            "the tensor-parallel ranks under sequence parallelism, tp =", "change the sequence length");
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
