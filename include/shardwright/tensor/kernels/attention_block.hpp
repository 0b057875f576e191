// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What a launch of attention works on: which keys each query sees, and where keys and values lie.

#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/kernels/attention_shape.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Queries and keys of each sequence by their positions: a query sees the keys up to its own one,
/// which are the first rows.
struct CausalBlock {
  TokenRuns queries;
  TokenRuns keys;

  /// @brief Every token of a sequence against every token.
  [[nodiscard]] SHARDWRIGHT_FUNCTION static constexpr CausalBlock whole(std::size_t sequence) {
    return {TokenRuns::one(sequence), TokenRuns::one(sequence)};
  }
  /// @brief Keys that a query row sees.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t keys_seen(std::size_t query) const {
    return keys.rows_before(queries.position(query) + 1);
  }
  /// @brief First of the query rows that see a key row; the rows after it do too.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t first_query(std::size_t key) const {
    return queries.rows_before(keys.position(key));
  }
  /// @brief Keys that the last query sees, which sees the most.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t keys_needed() const {
    return queries.rows == 0 ? 0 : keys_seen(queries.rows - 1);
  }
};

namespace detail {

/// Keys and values of a launch: a key of a token and a head, then its value.
template <class Element>
struct KeyValueSpan {
  MatrixSpan<Element> tokens;
  std::size_t column; // of the first head's key
  std::size_t stride; // from head to head

  [[nodiscard]] SHARDWRIGHT_FUNCTION Element* key(std::size_t token, std::size_t kv_head) const {
    return tokens.row(token) + kv_head * stride + column;
  }

  /// Inside a fused buffer of `shape`.
  [[nodiscard]] static KeyValueSpan fused(MatrixSpan<Element> qkv, const AttentionShape& shape) {
    return {qkv, shape.q_per_kv * shape.head_dim, shape.group_width()};
  }
  /// In a buffer of their own, [tokens, kv_heads * 2 * head_dim].
  [[nodiscard]] static KeyValueSpan packed(MatrixSpan<Element> key_values, const AttentionShape& shape) {
    return {key_values, 0, 2 * shape.head_dim};
  }
};

template <class Element>
MatrixSpan<const Element> constant(const MatrixSpan<Element>& span) {
  return {span.data, span.rows, span.columns, span.stride};
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
