// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Causal attention on a host core: blocks of query rows whose scores stay in cache, products in
/// register tiles.

#include <shardwright/tensor/kernels/attention_block.hpp>
#include <shardwright/tensor/kernels/attention_shape.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/math.hpp>
#include <shardwright/tensor/kernels/tiles.hpp>

#include <cmath>
#include <cstddef>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Query rows of a block. Scores are kept transposed, [keys, attention_rows]: the lanes then run over
/// queries, and the softmax needs no sum across lanes.
inline constexpr std::size_t attention_rows = 32;

template <class Number>
inline constexpr Number infinite = std::numeric_limits<Number>::infinity();

SHARDWRIGHT_FUNCTION constexpr std::size_t rounded_up(std::size_t count, std::size_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// Buffers of one worker, carved from the caller's workspace.
template <class Number>
struct AttentionBuffers {
  static constexpr std::size_t rows = attention_rows;
  std::size_t width;      // head_dim rounded up to whole registers; the padding holds zeros
  Number* keys;           // [sequence, width]
  Number* values;         // [sequence, width]
  Number* queries_across; // [head_dim, rows], scaled
  Number* scores;         // [sequence, rows], then probabilities
  Number* result;         // [rows, width]: outputs, or query gradients
  Number* d_keys;         // [sequence, width]; from here on for the backward pass
  Number* d_values;       // [sequence, width]
  Number* queries;        // [rows, width], scaled
  Number* d_out;          // [rows, width]
  Number* d_out_across;   // [head_dim, rows]
  Number* d_scores;       // [sequence, rows]

  SHARDWRIGHT_FUNCTION static std::size_t width_of(const AttentionShape& shape) {
    return rounded_up(shape.head_dim, lane_count<Number>);
  }

  SHARDWRIGHT_FUNCTION static std::size_t forward_size(const AttentionShape& shape) {
    const std::size_t width = width_of(shape);
    return 2 * shape.sequence * width + 2 * width * rows + shape.sequence * rows;
  }
  SHARDWRIGHT_FUNCTION static std::size_t backward_size(const AttentionShape& shape) {
    const std::size_t width = width_of(shape);
    return forward_size(shape) + 2 * shape.sequence * width + 3 * width * rows + shape.sequence * rows;
  }

  SHARDWRIGHT_FUNCTION static AttentionBuffers carve(Number* from, const AttentionShape& shape,
                                                     bool backward) {
    AttentionBuffers buffers{};
    const auto take = [&from](std::size_t count) {
      Number* block = from;
      from += count;
      return block;
    };
    const std::size_t width = buffers.width = width_of(shape);
    buffers.keys = take(shape.sequence * width);
    buffers.values = take(shape.sequence * width);
    buffers.queries_across = take(width * rows);
    buffers.scores = take(shape.sequence * rows);
    buffers.result = take(width * rows);
    if (!backward)
      return buffers;
    buffers.d_keys = take(shape.sequence * width);
    buffers.d_values = take(shape.sequence * width);
    buffers.queries = take(width * rows);
    buffers.d_out = take(width * rows);
    buffers.d_out_across = take(width * rows);
    buffers.d_scores = take(shape.sequence * rows);
    return buffers;
  }
};

/// Copies rows into a packed block of whole registers, times `factor`, with zeros in the padding.
template <class Element, class Number>
SHARDWRIGHT_FUNCTION inline void pack_rows(const Element* from, std::size_t stride, std::size_t count,
                                           std::size_t columns, Number factor, Number* to,
                                           std::size_t padded_rows, std::size_t width) {
  for (std::size_t i = 0; i < count; ++i) {
    Number* row = to + i * width;
    const Element* in = from + i * stride;
    for_chunks<Number>(0, columns, [=](auto chunk, std::size_t c) {
      WholeChunk<Number>{}.store(row + c, chunk.load(in + c) * factor);
    });
  }
  for (std::size_t i = count * width; i < padded_rows * width; ++i)
    to[i] = Number(0);
}

/// across[c, i] = packed[i, c] for a block of attention_rows packed rows.
template <class Number>
SHARDWRIGHT_FUNCTION inline void transpose_rows(const Number* packed, std::size_t width, std::size_t columns,
                                                Number* across) {
  for (std::size_t c = 0; c < columns; ++c) {
    for (std::size_t i = 0; i < attention_rows; ++i)
      across[c * attention_rows + i] = packed[i * width + c];
  }
}

/// Rows of a packed block, each times its own factor, to where they belong: copied, or added there.
template <TileStore store = TileStore::assign, class Number, class Factor, class Out>
SHARDWRIGHT_FUNCTION inline void unpack_rows(const Number* packed, std::size_t width, std::size_t count,
                                             std::size_t columns, Factor factor, Out* to,
                                             std::size_t stride) {
  for (std::size_t i = 0; i < count; ++i) {
    Out* out = to + i * stride;
    const Number* row = packed + i * width;
    const Number scale = factor(i);
    for_chunks<Number>(0, columns, [=](auto chunk, std::size_t c) {
      if constexpr (store == TileStore::accumulate)
        chunk.store(out + c, chunk.load(out + c) + WholeChunk<Number>{}.load(row + c) * scale);
      else
        chunk.store(out + c, WholeChunk<Number>{}.load(row + c) * scale);
    });
  }
}

/// Scores of the first `keys` keys that a query of the block from `first_row` on must not see become
/// -infinity.
template <class Number>
SHARDWRIGHT_FUNCTION inline void mask_unseen(Number* scores, const CausalBlock& block, std::size_t first_row,
                                             std::size_t keys) {
  for (std::size_t j = block.keys_seen(first_row); j < keys; ++j) {
    const std::size_t unseeing = block.first_query(j) - first_row;
    for (std::size_t i = 0; i < unseeing; ++i)
      scores[j * attention_rows + i] = -infinite<Number>;
  }
}

/// Attention of the queries of `qkv` over the keys that they see of `block`. `merge` joins the result with
/// that of other keys, which `out` and `log_sum_exp` hold. `Out` is Element or its MainElement.
template <class Element, class Out = Element>
struct AttentionForward {
  using Number = MainElement<Element>;
  static constexpr std::size_t rows = attention_rows;
  static constexpr std::size_t registers = attention_rows / lane_count<Number>;
  MatrixSpan<const Element> qkv;
  KeyValueSpan<const Element> key_values;
  MatrixSpan<Out> out;
  Number* log_sum_exp;
  AttentionShape shape;
  CausalBlock block;
  bool merge;
  Number scale;
  Number* workspace;
  std::size_t workers;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t worker) const {
    const auto buffers = AttentionBuffers<Number>::carve(
        workspace + worker * AttentionBuffers<Number>::forward_size(shape), shape, false);
    for (std::size_t unit = worker; unit < shape.batch * shape.kv_heads; unit += workers)
      group(unit, buffers);
  }

private:
  SHARDWRIGHT_FUNCTION void group(std::size_t unit, const AttentionBuffers<Number>& buffers) const {
    const std::size_t batch = unit / shape.kv_heads;
    const std::size_t kv_head = unit % shape.kv_heads;
    const Element* queries = qkv.row(batch * shape.sequence) + kv_head * shape.group_width();
    const Element* keys = key_values.key(batch * block.keys.rows, kv_head);
    const std::size_t needed = block.keys_needed();
    pack_rows(keys, key_values.tokens.stride, needed, shape.head_dim, Number(1), buffers.keys, needed,
              buffers.width);
    pack_rows(keys + shape.head_dim, key_values.tokens.stride, needed, shape.head_dim, Number(1),
              buffers.values, needed, buffers.width);
    for (std::size_t h = 0; h < shape.q_per_kv; ++h) {
      const std::size_t head = kv_head * shape.q_per_kv + h;
      for (std::size_t first = block.first_query(0); first < shape.sequence; first += rows) {
        const std::size_t count = first + rows <= shape.sequence ? rows : shape.sequence - first;
        row_block(queries + h * shape.head_dim + first * qkv.stride, first, count,
                  out.row(batch * shape.sequence + first) + head * shape.head_dim,
                  log_sum_exp + (batch * shape.heads() + head) * shape.sequence + first, buffers);
      }
    }
  }

  SHARDWRIGHT_FUNCTION void row_block(const Element* queries, std::size_t first, std::size_t count, Out* to,
                                      Number* lse, const AttentionBuffers<Number>& b) const {
    const std::size_t keys = block.keys_seen(first + count - 1);
    pack_rows(queries, qkv.stride, count, shape.head_dim, scale, b.result, rows, b.width);
    transpose_rows(b.result, b.width, shape.head_dim, b.queries_across);
    product_in_tiles<TileStore::assign, Number>(keys, rows, shape.head_dim, {b.keys, b.width, 1},
                                                b.queries_across, rows, b.scores, rows);
    mask_unseen(b.scores, block, first, keys);
    Number sums[rows];
    Number maxima[rows];
    softmax(b.scores, keys, maxima, sums);
    product_in_tiles<TileStore::assign, Number>(rows, b.width, keys, {b.scores, 1, rows}, b.values, b.width,
                                                b.result, b.width);
    if (merge)
      return merge_rows(b, count, maxima, sums, to, lse);
    unpack_rows(
        b.result, b.width, count, shape.head_dim, [&sums](std::size_t i) { return Number(1) / sums[i]; }, to,
        out.stride);
    for (std::size_t i = 0; i < count; ++i)
      lse[i] = maxima[i] + std::log(sums[i]);
  }

  /// With o and l of other keys and the sums s and r = sum exp(score - m) v of these: l' = log(e^l + e^m s),
  /// o' = e^(l - l') o + e^(m - l') r (Liu et al. 2023, arXiv 2310.01889, section 3).
  SHARDWRIGHT_FUNCTION void merge_rows(const AttentionBuffers<Number>& b, std::size_t count,
                                       const Number* maxima, const Number* sums, Out* to, Number* lse) const {
    for (std::size_t i = 0; i < count; ++i) {
      const Number fresh = maxima[i] + std::log(sums[i]);
      const Number larger = lse[i] > fresh ? lse[i] : fresh;
      const Number joint = larger + std::log(std::exp(lse[i] - larger) + std::exp(fresh - larger));
      const Number old_share = std::exp(lse[i] - joint);
      const Number fresh_share = std::exp(maxima[i] - joint);
      Out* row = to + i * out.stride;
      const Number* result = b.result + i * b.width;
      for_chunks<Number>(0, shape.head_dim, [=](auto chunk, std::size_t c) {
        chunk.store(row + c, chunk.load(row + c) * old_share + chunk.load(result + c) * fresh_share);
      });
      lse[i] = joint;
    }
  }

  /// Scores become exp(score - maximum of the query); the sums are left to the caller.
  SHARDWRIGHT_FUNCTION static void softmax(Number* scores, std::size_t keys, Number* maxima, Number* sums) {
    constexpr WholeChunk<Number> whole;
    constexpr std::size_t width = lane_count<Number>;
    Lanes<Number> best[registers];
    Lanes<Number> total[registers];
    for (std::size_t r = 0; r < registers; ++r) {
      best[r] = broadcast(-infinite<Number>);
      total[r] = Lanes<Number>{};
    }
    for (std::size_t j = 0; j < keys; ++j) {
      for (std::size_t r = 0; r < registers; ++r)
        best[r] = larger(whole.load(scores + j * rows + r * width), best[r]);
    }
    for (std::size_t j = 0; j < keys; ++j) {
      for (std::size_t r = 0; r < registers; ++r) {
        Number* at = scores + j * rows + r * width;
        const Lanes<Number> value = exp_of_nonpositive<Number>(whole.load(at) - best[r]);
        total[r] += value;
        whole.store(at, value);
      }
    }
    for (std::size_t r = 0; r < registers; ++r) {
      whole.store(maxima + r * width, best[r]);
      whole.store(sums + r * width, total[r]);
    }
  }
};

/// Gradient by recomputed probabilities P = exp(S - log_sum_exp): dV = P' dO, dS = P (dO V' - rowsum(dO O)),
/// dQ = scale dS K, dK = scale dS' Q (Dao et al. 2022, arXiv 2205.14135, appendix B).
///
/// `out` and `log_sum_exp` are those of all keys, so gradients of blocks of keys add up. `merge` adds dQ to
/// what `d_qkv` holds of other keys; dK and dV are written.
template <class Element, class Out = Element>
struct AttentionBackward {
  using Number = MainElement<Element>;
  static constexpr std::size_t rows = attention_rows;
  static constexpr std::size_t registers = attention_rows / lane_count<Number>;
  MatrixSpan<const Element> qkv;
  KeyValueSpan<const Element> key_values;
  MatrixSpan<const Element> out;
  const Number* log_sum_exp;
  MatrixSpan<const Element> d_out;
  MatrixSpan<Out> d_qkv;
  KeyValueSpan<Out> d_key_values;
  AttentionShape shape;
  CausalBlock block;
  bool merge;
  Number scale;
  Number* workspace;
  std::size_t workers;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t worker) const {
    const auto buffers = AttentionBuffers<Number>::carve(
        workspace + worker * AttentionBuffers<Number>::backward_size(shape), shape, true);
    for (std::size_t unit = worker; unit < shape.batch * shape.kv_heads; unit += workers)
      group(unit, buffers);
  }

private:
  SHARDWRIGHT_FUNCTION void group(std::size_t unit, const AttentionBuffers<Number>& b) const {
    const std::size_t batch = unit / shape.kv_heads;
    const std::size_t kv_head = unit % shape.kv_heads;
    const std::size_t token = batch * block.keys.rows;
    const std::size_t needed = block.keys_needed();
    const Element* keys = key_values.key(token, kv_head);
    pack_rows(keys, key_values.tokens.stride, needed, shape.head_dim, Number(1), b.keys, needed, b.width);
    pack_rows(keys + shape.head_dim, key_values.tokens.stride, needed, shape.head_dim, Number(1), b.values,
              needed, b.width);
    for (std::size_t i = 0; i < block.keys.rows * b.width; ++i)
      b.d_keys[i] = b.d_values[i] = Number(0);
    for (std::size_t h = 0; h < shape.q_per_kv; ++h) {
      for (std::size_t first = block.first_query(0); first < shape.sequence; first += rows) {
        const std::size_t count = first + rows <= shape.sequence ? rows : shape.sequence - first;
        row_block(batch, kv_head, h, first, count, b);
      }
    }
    const auto one = [](std::size_t) { return Number(1); };
    Out* d_keys = d_key_values.key(token, kv_head);
    const std::size_t stride = d_key_values.tokens.stride;
    unpack_rows(b.d_keys, b.width, block.keys.rows, shape.head_dim, one, d_keys, stride);
    unpack_rows(b.d_values, b.width, block.keys.rows, shape.head_dim, one, d_keys + shape.head_dim, stride);
  }

  SHARDWRIGHT_FUNCTION void row_block(std::size_t batch, std::size_t kv_head, std::size_t h,
                                      std::size_t first, std::size_t count,
                                      const AttentionBuffers<Number>& b) const {
    const std::size_t keys = block.keys_seen(first + count - 1);
    const std::size_t head = kv_head * shape.q_per_kv + h;
    const std::size_t token = batch * shape.sequence + first;
    const std::size_t q_column = kv_head * shape.group_width() + h * shape.head_dim;
    const Element* outputs = out.row(token) + head * shape.head_dim;
    const Element* gradients = d_out.row(token) + head * shape.head_dim;
    pack_rows(qkv.row(token) + q_column, qkv.stride, count, shape.head_dim, scale, b.queries, rows, b.width);
    pack_rows(gradients, d_out.stride, count, shape.head_dim, Number(1), b.d_out, rows, b.width);
    transpose_rows(b.queries, b.width, shape.head_dim, b.queries_across);
    transpose_rows(b.d_out, b.width, shape.head_dim, b.d_out_across);

    // Padding rows have probability exp(0 - infinity) = 0.
    Number lse[rows];
    Number dots[rows];
    for (std::size_t i = 0; i < rows; ++i) {
      lse[i] = infinite<Number>;
      dots[i] = Number(0);
    }
    const Number* saved = log_sum_exp + (batch * shape.heads() + head) * shape.sequence + first;
    for (std::size_t i = 0; i < count; ++i) {
      lse[i] = saved[i];
      dots[i] = dot(outputs + i * out.stride, gradients + i * d_out.stride);
    }

    product_in_tiles<TileStore::assign, Number>(keys, rows, shape.head_dim, {b.keys, b.width, 1},
                                                b.queries_across, rows, b.scores, rows);
    mask_unseen(b.scores, block, first, keys);
    product_in_tiles<TileStore::assign, Number>(keys, rows, shape.head_dim, {b.values, b.width, 1},
                                                b.d_out_across, rows, b.d_scores, rows);
    score_gradients(b.scores, b.d_scores, keys, lse, dots);
    product_in_tiles<TileStore::accumulate, Number>(keys, b.width, rows, {b.scores, rows, 1}, b.d_out,
                                                    b.width, b.d_values, b.width);
    product_in_tiles<TileStore::accumulate, Number>(keys, b.width, rows, {b.d_scores, rows, 1}, b.queries,
                                                    b.width, b.d_keys, b.width);
    product_in_tiles<TileStore::assign, Number>(rows, b.width, keys, {b.d_scores, 1, rows}, b.keys, b.width,
                                                b.result, b.width);
    const auto factor = [by = scale](std::size_t) { return by; };
    Out* d_queries = d_qkv.row(token) + q_column;
    if (merge)
      unpack_rows<TileStore::accumulate>(b.result, b.width, count, shape.head_dim, factor, d_queries,
                                         d_qkv.stride);
    else
      unpack_rows(b.result, b.width, count, shape.head_dim, factor, d_queries, d_qkv.stride);
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

  SHARDWRIGHT_FUNCTION Number dot(const Element* x, const Element* y) const {
    Lanes<Number> sum{};
    for_chunks<Number>(0, shape.head_dim, [x, y, &sum](auto chunk, std::size_t c) {
      sum += chunk.load(x + c) * chunk.load(y + c);
    });
    return sum_of<Number>(sum);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
