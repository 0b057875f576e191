// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Gradients of attention on a host core, with any mask, in the blocks of host.hpp.

#include <shardwright/tensor/kernels/attention/host.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Sums of the gradients of keys and values that depend only on the positions of the queries, not on the
/// ranks that share them: a sequence is 16 pieces, and the queries of pieces i and 15 - i add to leaf i of
/// eight, in order, 32 rows or the rest of a piece at a time. A rank in zig-zag order has whole leaves, which
/// are neighbours.
struct QueryLeaves {
  static constexpr std::size_t all = 8;
  std::size_t rows;         ///< Of the block.
  std::size_t piece;        ///< Positions; without pieces, for one leaf, unless 16 divides the sequence.
  bool pieces = false;      ///< Whether there are any.
  std::size_t first = 0;    ///< Leaf of the block.
  std::size_t count = 1;    ///< Leaves of the block.
  std::size_t together = 1; ///< Leaves whose pieces fill a block of rows.

  /// @pre no text, and whole leaves
  SHARDWRIGHT_FUNCTION explicit constexpr QueryLeaves(const AttentionBlock& block)
      : rows(block.queries.rows), piece(block.keys.rows), pieces(piece > 0 && piece % (2 * all) == 0) {
    if (!pieces)
      return;
    piece /= 2 * all;
    first = leaf_of(block.queries.first);
    count = rows / (2 * piece);
    while (together < count && 2 * together * piece <= attention_rows)
      together *= 2;
  }
  /// Sums that are alive at the same time.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t sums() const {
    std::size_t out = together;
    for (std::size_t joined = together; joined < count; joined *= 2)
      ++out;
    return out;
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t leaf_of(std::size_t position) const {
    const std::size_t number = position / piece;
    return number < all ? number : 2 * all - 1 - number;
  }
  /// Rows of the piece of a position that are left.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t left(std::size_t position) const {
    return piece - position % piece;
  }
  /// The rows of some leaves, counted from the block's first one: of their first pieces, then of the others.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr RowRange rows_of(std::size_t leaf, std::size_t leaves,
                                                                bool others) const {
    if (!pieces)
      return {others ? rows : 0, rows};
    const std::size_t begin = leaf * piece, end = (leaf + leaves) * piece;
    return others ? RowRange{rows - end, rows - begin} : RowRange{begin, end};
  }
};

/// Gradient by recomputed probabilities P = exp(S - log_sum_exp): dV = P' dO, dS = P (dO V' - rowsum(dO O)),
/// dQ = scale dS K, dK = scale dS' Q (Dao et al. 2022, arXiv 2205.14135, appendix B).
///
/// `out` and `log_sum_exp` are those of all keys, so gradients of blocks of keys add up. `merge` adds dQ to
/// the gradient from other keys in `d_qkv`; dK and dV are overwritten. Of queries that see no key, dQ is
/// zero. `in_leaves` adds dK and dV in QueryLeaves, which then join in a binary tree.
template <class Element, class Out = Element, bool in_leaves = false> struct AttentionBackward {
  using Number = AccumulationElement<Element>;
  static constexpr std::size_t rows = attention_rows;
  static constexpr std::size_t registers = attention_rows / lane_count<Number>;
  AttentionBackwardQuery<Element, Out, AttentionBlock> a;
  Number* workspace;
  std::size_t workers;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t worker) const {
    const std::size_t keys = a.block.keys.rows, sums = sums_alive();
    const auto buffers = AttentionBuffers<Number>::carve(
        workspace + worker * AttentionBuffers<Number>::size(a.shape, keys, sums), a.shape, keys, sums);
    for (std::size_t unit = worker; unit < a.shape.batch * a.shape.kv_heads; unit += workers)
      group(unit, buffers);
  }

private:
  [[nodiscard]] SHARDWRIGHT_FUNCTION std::size_t sums_alive() const {
    if constexpr (in_leaves)
      return QueryLeaves(a.block).sums();
    else
      return 1;
  }

  SHARDWRIGHT_FUNCTION void group(std::size_t unit, const AttentionBuffers<Number>& b) const {
    const std::size_t batch = unit / a.shape.kv_heads;
    const std::size_t kv_head = unit % a.shape.kv_heads;
    const std::size_t token = batch * a.block.keys.rows;
    const AttentionBlock own = a.block.of(batch);
    pack_head(a.key_values, token, kv_head, own.seen(batch), a.shape, b);
    if constexpr (in_leaves) {
      const QueryLeaves leaves(a.block);
      sum_leaves(own, batch, kv_head, leaves, 0, leaves.count, b);
    } else {
      clear_sums(1, b);
      for (std::size_t h = 0; h < a.shape.q_per_kv; ++h)
        add_rows(own, batch, kv_head, h, {a.merge ? own.first_query(0) : 0, a.shape.sequence}, 0, b);
    }
    const auto one = [](std::size_t) { return Number(1); };
    Out* d_keys = a.d_key_values.key(token, kv_head);
    const std::size_t stride = a.d_key_values.tokens.stride;
    unpack_rows(b.d_keys, b.width, a.block.keys.rows, a.shape.head_dim, one, d_keys, stride);
    unpack_rows(b.d_values, b.value_width, a.block.keys.rows, a.shape.value_width(), one,
                d_keys + a.shape.head_dim, stride);
  }

  SHARDWRIGHT_FUNCTION void clear_sums(std::size_t count, const AttentionBuffers<Number>& b) const {
    for (std::size_t i = 0; i < count * a.block.keys.rows * b.width; ++i)
      b.d_keys[i] = Number(0);
    for (std::size_t i = 0; i < count * a.block.keys.rows * b.value_width; ++i)
      b.d_values[i] = Number(0);
  }

  /// The first sum of `b` becomes that of `count` leaves of the block, from `leaf` on.
  SHARDWRIGHT_FUNCTION void sum_leaves(const AttentionBlock& own, std::size_t batch, std::size_t kv_head,
                                       const QueryLeaves& leaves, std::size_t leaf, std::size_t count,
                                       const AttentionBuffers<Number>& b) const {
    const std::size_t half = count / 2;
    if (count > leaves.together) {
      sum_leaves(own, batch, kv_head, leaves, leaf, half, b);
      sum_leaves(own, batch, kv_head, leaves, leaf + half, half, b.from_sum(1, a.block.keys.rows));
      return join(2, b);
    }
    clear_sums(count, b);
    for (std::size_t h = 0; h < a.shape.q_per_kv; ++h)
      for (const bool others : {false, true})
        add_rows(own, batch, kv_head, h, leaves.rows_of(leaf, count, others), leaf, b);
    join(count, b);
  }

  /// The gradients of some rows of queries; of keys, they are added to the sums, the first of which is that
  /// of `leaf`.
  SHARDWRIGHT_FUNCTION void add_rows(const AttentionBlock& own, std::size_t batch, std::size_t kv_head,
                                     std::size_t h, const RowRange& range, std::size_t leaf,
                                     const AttentionBuffers<Number>& b) const {
    std::size_t count = 0;
    for (std::size_t first = range.begin; first < range.end; first += count) {
      const std::size_t left = range.end - first;
      count = own.rows_at_once(first, left < rows ? left : rows);
      row_block(own, batch, kv_head, h, first, count, leaf, b);
    }
  }

  SHARDWRIGHT_FUNCTION void row_block(const AttentionBlock& own, std::size_t batch, std::size_t kv_head,
                                      std::size_t h, std::size_t first, std::size_t count, std::size_t leaf,
                                      const AttentionBuffers<Number>& b) const {
    const RowRange seen = own.seen(batch, first, count);
    const std::size_t head = kv_head * a.shape.q_per_kv + h;
    const std::size_t token = batch * a.shape.sequence + first;
    const std::size_t q_column = kv_head * a.shape.group_width() + h * a.shape.head_dim;
    Out* d_queries = a.d_qkv.row(token) + q_column;
    if (seen.empty()) {
      if (!a.merge)
        clear_rows(d_queries, a.d_qkv.stride, count, a.shape.head_dim);
      return;
    }
    const Element* gradients = a.d_out.row(token) + head * a.shape.value_width();
    pack_rows(a.qkv.row(token) + q_column, a.qkv.stride, count, a.shape.head_dim, a.scale, b.queries, rows,
              b.width);
    pack_rows(gradients, a.d_out.stride, count, a.shape.value_width(), Number(1), b.d_out, rows,
              b.value_width);
    transpose_rows(b.queries, b.width, b.queries_across);
    transpose_rows(b.d_out, b.value_width, b.d_out_across);
    Number lse[rows];
    Number dots[rows];
    row_numbers(a.log_sum_exp + (batch * a.shape.heads() + head) * a.shape.sequence + first,
                a.out.row(token) + head * a.shape.value_width(), gradients, count, lse, dots);

    const std::size_t keys = seen.size(), at = seen.begin * b.width;
    const std::size_t values = seen.begin * b.value_width;
    product_in_tiles<TileStore::assign, Number>(keys, rows, a.shape.head_dim, {b.keys + at, b.width, 1},
                                                b.queries_across, rows, b.scores, rows);
    mask_unseen(b.scores, own, seen, first, count);
    product_in_tiles<TileStore::assign, Number>(keys, rows, a.shape.value_width(),
                                                {b.values + values, b.value_width, 1}, b.d_out_across, rows,
                                                b.d_scores, rows);
    score_gradients(b.scores, b.d_scores, keys, lse, dots);
    if constexpr (in_leaves) {
      const QueryLeaves leaves(a.block);
      std::size_t length = 0;
      for (std::size_t row = 0; row < count; row += length) {
        const std::size_t position = a.block.queries.position(first + row), left = leaves.left(position);
        length = left < count - row ? left : count - row;
        add_key_gradients(leaves.leaf_of(position) - leaves.first - leaf, row, length, seen, b);
      }
    } else {
      add_key_gradients(0, 0, rows, seen, b);
    }
    product_in_tiles<TileStore::assign, Number>(rows, b.width, keys, {b.d_scores, 1, rows}, b.keys + at,
                                                b.width, b.result, b.width);
    const auto factor = [by = a.scale](std::size_t) { return by; };
    if (a.merge)
      unpack_rows<TileStore::accumulate>(b.result, b.width, count, a.shape.head_dim, factor, d_queries,
                                         a.d_qkv.stride);
    else
      unpack_rows(b.result, b.width, count, a.shape.head_dim, factor, d_queries, a.d_qkv.stride);
  }

  /// Adds dK and dV from `count` rows of a block, from `row` on, to one of the sums.
  SHARDWRIGHT_FUNCTION void add_key_gradients(std::size_t sum, std::size_t row, std::size_t count,
                                              const RowRange& seen, const AttentionBuffers<Number>& b) const {
    const std::size_t at = sum * a.block.keys.rows + seen.begin;
    product_in_tiles<TileStore::accumulate, Number>(
        seen.size(), b.value_width, count, {b.scores + row, rows, 1}, b.d_out + row * b.value_width,
        b.value_width, b.d_values + at * b.value_width, b.value_width);
    product_in_tiles<TileStore::accumulate, Number>(seen.size(), b.width, count, {b.d_scores + row, rows, 1},
                                                    b.queries + row * b.width, b.width,
                                                    b.d_keys + at * b.width, b.width);
  }

  /// The first of the sums becomes that of all in a binary tree.
  SHARDWRIGHT_FUNCTION void join(std::size_t count, const AttentionBuffers<Number>& b) const {
    const std::size_t keys = a.block.keys.rows;
    for (std::size_t step = 1; step < count; step *= 2)
      for (std::size_t sum = 0; sum < count; sum += 2 * step) {
        const auto left = b.from_sum(sum, keys), right = b.from_sum(sum + step, keys);
        add_lanes(right.d_keys, left.d_keys, 0, keys * b.width);
        add_lanes(right.d_values, left.d_values, 0, keys * b.value_width);
      }
  }

  /// log_sum_exp and rowsum(dO O) of the rows. Those of padding, and those that see no key, have probability
  /// exp(... - infinity) = 0.
  SHARDWRIGHT_FUNCTION void row_numbers(const Number* saved, const Element* outputs, const Element* gradients,
                                        std::size_t count, Number* lse, Number* dots) const {
    for (std::size_t i = 0; i < rows; ++i) {
      lse[i] = infinite<Number>;
      dots[i] = Number(0);
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (saved[i] != -infinite<Number>)
        lse[i] = saved[i];
      dots[i] = dot_lanes(outputs + i * a.out.stride, gradients + i * a.d_out.stride, a.shape.value_width());
    }
  }

  /// Scores become probabilities, and gradients of probabilities become gradients of scores.
  SHARDWRIGHT_FUNCTION static void score_gradients(Number* scores, Number* d_scores, std::size_t keys,
                                                   const Number* lse, const Number* dots) {
    constexpr WholeChunk<Number> whole;
    constexpr std::size_t width = lane_count<Number>;
    for (std::size_t j = 0; j < keys; ++j) {
      for (std::size_t r = 0; r < registers; ++r) {
        const std::size_t at = j * rows + r * width;
        const Lanes<Number> p =
            exp_of_nonpositive<Number>(whole.load(scores + at) - whole.load(lse + r * width));
        whole.store(scores + at, p);
        whole.store(d_scores + at, p * (whole.load(d_scores + at) - whole.load(dots + r * width)));
      }
    }
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
