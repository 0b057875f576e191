// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The work of one launch of attention: the keys that each query sees, and the location of keys and
/// values.

#include <shardwright/layout/attention_mask.hpp>
#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/kernels/attention/shape.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Queries and keys of each sequence by their positions: a query sees the keys up to its own, which
/// are the first rows. Device kernels compiled for it know that, and have half the bounds of those for an
/// AttentionBlock.
struct CausalBlock {
  /// Keys that a query sees begin with the first row, and queries that see a key end with the last.
  static constexpr bool one_sided = true;
  TokenRuns queries;
  TokenRuns keys;

  /// @brief All tokens of a sequence as queries and as keys.
  [[nodiscard]] SHARDWRIGHT_FUNCTION static constexpr CausalBlock whole(std::size_t sequence) {
    return {TokenRuns::one(sequence), TokenRuns::one(sequence)};
  }
  /// @brief The same for every sequence.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr const CausalBlock& of(std::size_t) const { return *this; }
  /// @brief The first key row that a query row sees.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t first_key(std::size_t) const { return 0; }
  /// @brief One more than the last one.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t end_key(std::size_t query) const {
    return keys.rows_before(queries.position(query) + 1);
  }
  /// @brief The first query row that sees a key row.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t first_query(std::size_t key) const {
    return queries.rows_before(keys.position(key));
  }
  /// @brief One more than the last one.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t end_query(std::size_t) const {
    return queries.rows;
  }
};

/// @brief Rows from `begin` on, up to `end`.
struct RowRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr bool empty() const { return begin >= end; }
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t size() const { return empty() ? 0 : end - begin; }
};

/// @brief The keys that the queries of a launch see.
struct KeyMask {
  KeyWindow window{};
  const std::int32_t* lengths = nullptr; ///< Of each sequence: keys from there on are hidden. May be null.
  /// Of each token of each sequence: the first position of its document, outside of which it sees no key and
  /// no query sees it. May be null.
  const std::int32_t* starts = nullptr;
  /// Of each place of each sequence: its position in the text; TokenRuns then are places, and positions
  /// ascend with a rank's rows. May be null.
  const std::int32_t* text = nullptr;
  /// Positions of a sequence, if there are documents, whose starts a dry run does not have, or a text; else
  /// 0.
  std::size_t positions = 0;

  /// @brief Returns whether there is a text. On a device there is none, so its kernels have no code for it.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr bool has_text() const {
#if defined(__CUDA_ARCH__)
    return false;
#else
    return text != nullptr;
#endif
  }
  /// @brief Returns whether a CausalBlock can express the mask.
  [[nodiscard]] constexpr bool has_causal_form() const {
    return lengths == nullptr && starts == nullptr && text == nullptr &&
           window.before == KeyWindow::unlimited &&
           (window.after == 0 || window.after == KeyWindow::unlimited);
  }
  /// @brief Returns whether the kernels of a device know the mask: all but lengths and a text.
  [[nodiscard]] constexpr bool has_device_form() const { return lengths == nullptr && text == nullptr; }
};

/// @brief Queries and keys of each sequence by their positions, and which of the keys a query sees.
///
/// Positions ascend with rows, so the keys of a query are contiguous, and their begin and end ascend with the
/// query. With documents or a text, which differ from sequence to sequence, a launch takes the block `of` a
/// sequence.
struct AttentionBlock {
  static constexpr bool one_sided = false; ///< See CausalBlock.
  TokenRuns queries;
  TokenRuns keys;
  KeyMask mask;

  constexpr AttentionBlock(const TokenRuns& query_runs, const TokenRuns& key_runs,
                           const KeyMask& key_mask = {})
      : queries(query_runs), keys(key_runs), mask(key_mask) {}
  constexpr AttentionBlock(const CausalBlock& block) : AttentionBlock(block.queries, block.keys) {}
  /// @brief All tokens of a sequence as queries and as keys.
  [[nodiscard]] static constexpr AttentionBlock whole(std::size_t sequence, const KeyMask& mask = {}) {
    return {TokenRuns::one(sequence), TokenRuns::one(sequence), mask};
  }

  /// @brief The same with the documents and the text of one sequence, which are otherwise those of the first.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr AttentionBlock of(std::size_t sequence) const {
    AttentionBlock out = *this;
    if (mask.starts != nullptr)
      out.mask.starts += sequence * mask.positions;
    if (mask.has_text())
      out.mask.text += sequence * mask.positions;
    return out;
  }

  /// @brief The first key row that a query row sees, ignoring lengths.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t first_key(std::size_t query) const {
    const std::size_t position = position_of(queries, query);
    return rows_before(keys, not_before_document(mask.window.first_key(position), position));
  }
  /// @brief One more than the last one.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t end_key(std::size_t query) const {
    const std::size_t position = position_of(queries, query);
    return rows_before(keys, not_after_document(mask.window.end_key(position), position));
  }
  /// @brief The first query row that sees a key row, ignoring lengths.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t first_query(std::size_t key) const {
    const std::size_t position = position_of(keys, key);
    return rows_before(queries, not_before_document(mask.window.first_query(position), position));
  }
  /// @brief One more than the last one.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t end_query(std::size_t key) const {
    const std::size_t position = position_of(keys, key);
    return rows_before(queries, not_after_document(mask.window.end_query(position), position));
  }

  /// @brief From the first key row to the last one that any of `count` query rows of a sequence sees.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr RowRange seen(std::size_t sequence, std::size_t query,
                                                             std::size_t count) const {
    if (count == 0)
      return {};
    const std::size_t end = end_key(query + count - 1), length = key_rows(sequence);
    return {first_key(query), end < length ? end : length};
  }
  /// @brief The same for all query rows.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr RowRange seen(std::size_t sequence) const {
    const RowRange first_run = seen(sequence, 0, queries.split);
    const RowRange second_run = seen(sequence, queries.split, queries.rows - queries.split);
    if (first_run.empty())
      return second_run;
    return second_run.empty() ? first_run : RowRange{first_run.begin, second_run.end};
  }
  /// @brief Returns whether no query sees any key, whatever the lengths and documents.
  [[nodiscard]] constexpr bool hides_all_keys() const {
    return mask.text == nullptr && AttentionBlock(queries, keys, {mask.window}).seen(0).empty();
  }
  /// @brief Number of visible query-key pairs in one sequence, ignoring lengths; with documents, in the
  /// first.
  [[nodiscard]] constexpr std::size_t pairs() const {
    std::size_t sum = 0;
    for (std::size_t query = 0; query < queries.rows; ++query)
      sum += RowRange{first_key(query), end_key(query)}.size();
    return sum;
  }
  /// @brief Number of query rows from `query` on, at most `most`, to process together: with a window
  /// or documents, rows of two different runs see keys that are far apart, and so do those of documents that
  /// are neighbours on this rank only.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t rows_at_once(std::size_t query,
                                                                        std::size_t most) const {
    const bool near = mask.window.before != KeyWindow::unlimited || mask.starts != nullptr;
    const bool apart = near && mask.text == nullptr && query < queries.split;
    const std::size_t left = (apart ? queries.split : queries.rows) - query;
    const std::size_t rows = left < most ? left : most;
    return mask.text == nullptr || mask.starts == nullptr ? rows : rows_of_document(query, rows);
  }
  /// @brief The same for kernels that know only this form. @pre mask.has_causal_form()
  [[nodiscard]] constexpr CausalBlock causal_form() const {
    // Queries that see all keys are treated as queries after all keys.
    return {mask.window.after == 0 ? queries : TokenRuns::one(queries.rows, keys.end()), keys};
  }

private:
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t position_of(const TokenRuns& runs,
                                                                       std::size_t row) const {
    const std::size_t place = runs.position(row);
    return mask.has_text() ? static_cast<std::size_t>(mask.text[place]) : place;
  }
  /// Rows whose position is below `position`, by a search, as positions ascend.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t rows_before(const TokenRuns& runs,
                                                                       std::size_t position) const {
    if (!mask.has_text())
      return runs.rows_before(position);
    std::size_t below = 0, end = runs.rows;
    while (below < end) {
      const std::size_t middle = below + (end - below) / 2;
      if (position_of(runs, middle) < position)
        below = middle + 1;
      else
        end = middle;
    }
    return below;
  }
  /// Of `rows` query rows, those of the first one's document, or all if the keys are those of the same rows.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t rows_of_document(std::size_t query,
                                                                            std::size_t rows) const {
    if (rows == 0 || queries == keys)
      return rows;
    const std::size_t start = document_start(position_of(queries, query));
    while (document_start(position_of(queries, query + rows - 1)) != start)
      --rows;
    return rows;
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t document_start(std::size_t position) const {
    return static_cast<std::size_t>(mask.starts[position]);
  }
  /// `first`, or the first position of the document that holds `position`.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t not_before_document(std::size_t first,
                                                                               std::size_t position) const {
    if (mask.starts == nullptr)
      return first;
    const std::size_t start = document_start(position);
    return first < start ? start : first;
  }
  /// `end`, or the end of that document, by a search among the starts, which ascend.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t not_after_document(std::size_t end,
                                                                              std::size_t position) const {
    if (mask.starts == nullptr || end == position + 1)
      return end;
    std::size_t inside = position, outside = end < mask.positions ? end : mask.positions;
    if (document_start(outside - 1) <= position)
      return outside;
    while (outside - inside > 1) {
      const std::size_t middle = inside + (outside - inside) / 2;
      (document_start(middle) <= position ? inside : outside) = middle;
    }
    return outside;
  }

  SHARDWRIGHT_FUNCTION constexpr std::size_t key_rows(std::size_t sequence) const {
    if (mask.lengths == nullptr)
      return keys.rows;
    const std::int32_t length = mask.lengths[sequence];
    return length < 0 ? 0 : rows_before(keys, static_cast<std::size_t>(length));
  }
};

/// @brief The rotation of queries and keys by their positions: cosines and sines [positions, rotary_width /
/// 2], and the positions of the rows of every sequence. Without tables there is none.
template <class Number> struct Rotation {
  MatrixSpan<const Number> cosines{};
  MatrixSpan<const Number> sines{};
  TokenRuns positions{};
  /// Of each of `places` places of each sequence: its position in the text; `positions` then are places. For
  /// hosts; may be null.
  const std::int32_t* text = nullptr;
  std::size_t places = 0;

  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr bool turns() const { return cosines.data != nullptr; }
  /// @brief One more than the last position, or at least that.
  [[nodiscard]] constexpr std::size_t end() const { return text == nullptr ? positions.end() : places; }
};

namespace detail {

/// Keys and values of a launch: a key of a token and a head, then its value.
template <class Element> struct KeyValueSpan {
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
  /// In a separate buffer, [tokens, kv_heads * key_value_width].
  [[nodiscard]] static KeyValueSpan packed(MatrixSpan<Element> key_values, const AttentionShape& shape) {
    return {key_values, 0, shape.key_value_width()};
  }
};

/// The fused buffer, or its gradient, must be that of the shape.
template <class Qkv> void require_qkv(const char* operation, const AttentionShape& shape, const Qkv& qkv) {
  require(qkv.extent(0) == shape.tokens() && qkv.extent(1) == shape.qkv_width(), operation,
          "the buffer must be [batch * sequence, kv_heads * group_width].");
}
template <class Out> void require_output(const char* operation, const AttentionShape& shape, const Out& out) {
  require(out.extent(0) == shape.tokens() && out.extent(1) == shape.output_width(), operation,
          "the output must be [batch * sequence, heads * value_width].");
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
