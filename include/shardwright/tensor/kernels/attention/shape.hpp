// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sizes of a fused query-key-value buffer with grouped heads.

#include <shardwright/core/config.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Grouped-query attention (Ainslie et al. 2023) over a batch of sequences of one length.
///
/// The fused buffer is [batch * sequence, qkv_width()]. A row holds, for each key-value head, its query
/// heads, then its key, then its value, so that tensor parallelism splits it by whole groups. Outputs are
/// [batch * sequence, output_width()], query heads in the same order. Values may be narrower or wider than
/// keys, and rotary embedding may apply only to the end of a head (DeepSeek-AI, arXiv 2405.04434).
struct AttentionShape {
  std::size_t batch = 0;
  std::size_t sequence = 0;
  std::size_t kv_heads = 0;
  std::size_t q_per_kv = 1;
  std::size_t head_dim = 0;
  std::size_t value_dim = 0;  ///< Elements of a value; 0 means as many as in a key, head_dim.
  std::size_t rotary_dim = 0; ///< Elements at the end of a query or key that are rotated; 0 means all.

  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t tokens() const { return batch * sequence; }
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t heads() const { return kv_heads * q_per_kv; }
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t value_width() const {
    return value_dim == 0 ? head_dim : value_dim;
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t rotary_width() const {
    return rotary_dim == 0 ? head_dim : rotary_dim;
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t key_value_width() const {
    return head_dim + value_width();
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t group_width() const {
    return q_per_kv * head_dim + key_value_width();
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t qkv_width() const {
    return kv_heads * group_width();
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t output_width() const {
    return heads() * value_width();
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
