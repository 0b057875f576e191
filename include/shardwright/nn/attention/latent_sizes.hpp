// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sizes of multi-head latent attention.

#include <shardwright/core/config.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Sizes of a MultiHeadLatentAttention.
struct LatentAttentionSizes {
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t query_rank = 0;     ///< Elements of a token's compressed queries, if they are compressed.
  std::int64_t key_value_rank = 0; ///< Elements of a token's compressed keys and values.
  std::int64_t plain_width = 0;    ///< Elements of a query or key that are not rotated.
  std::int64_t rotary_width = 0;   ///< Elements that are rotated; a key's are the same in all heads.
  std::int64_t value_width = 0;    ///< Elements of a value.
  double norm_epsilon = 1e-6;
  double score_factor = 1; ///< On all scores, in addition to 1 / sqrt(plain_width + rotary_width).

  /// @brief Elements of a query or key.
  [[nodiscard]] std::int64_t head_width() const noexcept { return plain_width + rotary_width; }
  /// @brief Elements of the matrices.
  [[nodiscard]] std::int64_t matrices() const noexcept {
    const std::int64_t queries =
        query_rank > 0 ? query_rank * (width + heads * head_width()) : width * heads * head_width();
    return queries + width * (key_value_rank + rotary_width) +
           key_value_rank * heads * (plain_width + value_width) + heads * value_width * width;
  }
  /// @brief Elements of the gains after compression.
  [[nodiscard]] std::int64_t gains() const noexcept { return query_rank + key_value_rank; }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
