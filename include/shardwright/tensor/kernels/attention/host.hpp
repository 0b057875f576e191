// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention on a host core, with any mask: blocks of query rows whose scores stay in cache, products
/// in register tiles.

#include <shardwright/tensor/kernels/attention/device.hpp>
#include <shardwright/tensor/kernels/attention/shape.hpp>
#include <shardwright/tensor/kernels/attention/work.hpp>
#include <shardwright/tensor/kernels/lanes/math.hpp>
#include <shardwright/tensor/kernels/lanes/transposed.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/product/tiles.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Query rows of a block. Scores are kept transposed, [keys, attention_rows]: the lanes then run over
/// queries, and the softmax needs no sum across lanes.
inline constexpr std::size_t attention_rows = 32;

template <class Number> inline constexpr Number infinite = std::numeric_limits<Number>::infinity();
template <class Number> inline constexpr Number lowest = std::numeric_limits<Number>::lowest();

SHARDWRIGHT_FUNCTION constexpr std::size_t rounded_up(std::size_t count, std::size_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// Buffers of one worker, carved from the caller's workspace.
template <class Number> struct AttentionBuffers {
  static constexpr std::size_t rows = attention_rows;
  std::size_t width;       // head_dim rounded up to whole registers; the padding holds zeros
  std::size_t value_width; // the same of a value
  Number* keys;            // [keys, width]
  Number* values;          // [keys, value_width]
  Number* queries_across;  // [width, rows], scaled
  Number* scores;          // [keys, rows], then probabilities
  Number* result;          // [rows, the larger width]: outputs, or query gradients
  Number* d_keys;          // [sums, keys, width]; from here on for the backward pass
  Number* d_values;        // [sums, keys, value_width]
  Number* queries;         // [rows, width], scaled
  Number* d_out;           // [rows, value_width]
  Number* d_out_across;    // [value_width, rows]
  Number* d_scores;        // [keys, rows]
  std::size_t carved;      // elements

  SHARDWRIGHT_FUNCTION static std::size_t whole_registers(std::size_t elements) {
    return rounded_up(elements, lane_count<Number>);
  }

  /// The same with a later one of the sums as the first one.
  [[nodiscard]] SHARDWRIGHT_FUNCTION AttentionBuffers from_sum(std::size_t sum, std::size_t key_count) const {
    AttentionBuffers out = *this;
    out.d_keys += sum * key_count * width;
    out.d_values += sum * key_count * value_width;
    return out;
  }

  /// Elements of all buffers for this many keys of a sequence; `sums` of their gradients, none in the forward
  /// pass.
  SHARDWRIGHT_FUNCTION static std::size_t size(const AttentionShape& shape, std::size_t keys,
                                               std::size_t sums) {
    return carve(nullptr, shape, keys, sums).carved;
  }
  SHARDWRIGHT_FUNCTION static AttentionBuffers carve(Number* from, const AttentionShape& shape,
                                                     std::size_t keys, std::size_t sums) {
    AttentionBuffers buffers{};
    const auto take = [&buffers, from](std::size_t count) {
      Number* const block = from == nullptr ? nullptr : from + buffers.carved;
      buffers.carved += count;
      return block;
    };
    const std::size_t width = buffers.width = whole_registers(shape.head_dim);
    const std::size_t values = buffers.value_width = whole_registers(shape.value_width());
    buffers.keys = take(keys * width);
    buffers.values = take(keys * values);
    buffers.queries_across = take(width * rows);
    buffers.scores = take(keys * rows);
    buffers.result = take((width > values ? width : values) * rows);
    if (sums == 0)
      return buffers;
    buffers.d_keys = take(sums * keys * width);
    buffers.d_values = take(sums * keys * values);
    buffers.queries = take(width * rows);
    buffers.d_out = take(values * rows);
    buffers.d_out_across = take(values * rows);
    buffers.d_scores = take(keys * rows);
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

/// across[c, i] = packed[i, c] for a block of attention_rows packed rows of whole registers.
template <class Number>
SHARDWRIGHT_FUNCTION inline void transpose_rows(const Number* packed, std::size_t width, Number* across) {
  constexpr WholeChunk<Number> whole;
  constexpr std::size_t count = lane_count<Number>;
  static_assert(attention_rows % count == 0);
  for (std::size_t c = 0; c < width; c += count) {
    for (std::size_t i = 0; i < attention_rows; i += count) {
      Lanes<Number> square[count];
      for (std::size_t k = 0; k < count; ++k)
        square[k] = whole.load(packed + (i + k) * width + c);
      transpose_registers(square, std::make_index_sequence<count>{});
      for (std::size_t k = 0; k < count; ++k)
        whole.store(across + (c + k) * attention_rows + i, square[k]);
    }
  }
}

/// Copies or adds the rows of a packed block, each times its own factor, to their destination.
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

/// Packs the keys and values of a head that some query sees, each at its row.
template <class Element, class Number>
SHARDWRIGHT_FUNCTION inline void pack_head(const KeyValueSpan<const Element>& from, std::size_t token,
                                           std::size_t kv_head, const RowRange& rows,
                                           const AttentionShape& shape, const AttentionBuffers<Number>& to) {
  const Element* keys = from.key(token + rows.begin, kv_head);
  const std::size_t stride = from.tokens.stride, count = rows.size();
  pack_rows(keys, stride, count, shape.head_dim, Number(1), to.keys + rows.begin * to.width, count, to.width);
  pack_rows(keys + shape.head_dim, stride, count, shape.value_width(), Number(1),
            to.values + rows.begin * to.value_width, count, to.value_width);
}

/// Sets the scores of keys `seen` by the block to -infinity for the queries that must not see them.
template <class Number>
SHARDWRIGHT_FUNCTION inline void mask_unseen(Number* scores, const AttentionBlock& block,
                                             const RowRange& seen, std::size_t first_row, std::size_t count) {
  const std::size_t past = block.first_key(first_row + count - 1), ahead = block.end_key(first_row);
  // Keys that have left the window of the last queries, and keys that the first ones do not see yet.
  for (std::size_t j = seen.begin; j < past && j < seen.end; ++j)
    for (std::size_t i = block.end_query(j) - first_row; i < attention_rows; ++i)
      scores[(j - seen.begin) * attention_rows + i] = -infinite<Number>;
  for (std::size_t j = ahead > seen.begin ? ahead : seen.begin; j < seen.end; ++j) {
    const std::size_t unseeing = block.first_query(j) - first_row;
    for (std::size_t i = 0; i < unseeing; ++i)
      scores[(j - seen.begin) * attention_rows + i] = -infinite<Number>;
  }
}

/// Rows become zeros.
template <class Element>
SHARDWRIGHT_FUNCTION inline void clear_rows(Element* to, std::size_t stride, std::size_t count,
                                            std::size_t columns) {
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t c = 0; c < columns; ++c)
      to[i * stride + c] = Element(0);
}

/// Attention of the queries over the keys of their block that they see. `merge` combines the result with that
/// over other keys, in `out` and `log_sum_exp`. `Out` is Element or its AccumulationElement. Queries
/// that see no key have zeros, and -infinity as log_sum_exp.
template <class Element, class Out = Element> struct AttentionForward {
  using Number = AccumulationElement<Element>;
  static constexpr std::size_t rows = attention_rows;
  static constexpr std::size_t registers = attention_rows / lane_count<Number>;
  AttentionForwardRow<Element, Out, AttentionBlock> a;
  Number* workspace;
  std::size_t workers;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t worker) const {
    const std::size_t keys = a.block.keys.rows;
    const auto buffers = AttentionBuffers<Number>::carve(
        workspace + worker * AttentionBuffers<Number>::size(a.shape, keys, 0), a.shape, keys, 0);
    for (std::size_t unit = worker; unit < a.shape.batch * a.shape.kv_heads; unit += workers)
      group(unit, buffers);
  }

private:
  SHARDWRIGHT_FUNCTION void group(std::size_t unit, const AttentionBuffers<Number>& buffers) const {
    const std::size_t batch = unit / a.shape.kv_heads;
    const std::size_t kv_head = unit % a.shape.kv_heads;
    const Element* queries = a.qkv.row(batch * a.shape.sequence) + kv_head * a.shape.group_width();
    const AttentionBlock own = a.block.of(batch);
    pack_head(a.key_values, batch * a.block.keys.rows, kv_head, own.seen(batch), a.shape, buffers);
    for (std::size_t h = 0; h < a.shape.q_per_kv; ++h) {
      const std::size_t head = kv_head * a.shape.q_per_kv + h;
      std::size_t count = 0;
      for (std::size_t first = a.merge ? own.first_query(0) : 0; first < a.shape.sequence; first += count) {
        count = own.rows_at_once(first, rows);
        row_block(own, queries + h * a.shape.head_dim + first * a.qkv.stride, batch, first, count,
                  a.out.row(batch * a.shape.sequence + first) + head * a.shape.value_width(),
                  a.log_sum_exp + (batch * a.shape.heads() + head) * a.shape.sequence + first, buffers);
      }
    }
  }

  SHARDWRIGHT_FUNCTION void row_block(const AttentionBlock& own, const Element* queries, std::size_t batch,
                                      std::size_t first, std::size_t count, Out* to, Number* lse,
                                      const AttentionBuffers<Number>& b) const {
    const RowRange seen = own.seen(batch, first, count);
    if (seen.empty()) {
      if (!a.merge)
        set_unseeing(count, to, lse);
      return;
    }
    const Number* keys = b.keys + seen.begin * b.width;
    const Number* values = b.values + seen.begin * b.value_width;
    pack_rows(queries, a.qkv.stride, count, a.shape.head_dim, a.scale, b.result, rows, b.width);
    transpose_rows(b.result, b.width, b.queries_across);
    product_in_tiles<TileStore::assign, Number>(seen.size(), rows, a.shape.head_dim, {keys, b.width, 1},
                                                b.queries_across, rows, b.scores, rows);
    mask_unseen(b.scores, own, seen, first, count);
    Number sums[rows];
    Number maxima[rows];
    softmax(b.scores, seen.size(), maxima, sums);
    product_in_tiles<TileStore::assign, Number>(rows, b.value_width, seen.size(), {b.scores, 1, rows}, values,
                                                b.value_width, b.result, b.value_width);
    const auto sees = [&](std::size_t i) { return sums[i] != 0 || !own.seen(batch, first + i, 1).empty(); };
    if (a.merge)
      return merge_rows(b, count, sees, maxima, sums, to, lse);
    const auto share = [&](std::size_t i) { return sees(i) ? Number(1) / sums[i] : Number(0); };
    unpack_rows(b.result, b.value_width, count, a.shape.value_width(), share, to, a.out.stride);
    for (std::size_t i = 0; i < count; ++i)
      lse[i] = maxima[i] + std::log(sums[i]);
  }

  /// The result of queries that see no key.
  SHARDWRIGHT_FUNCTION void set_unseeing(std::size_t count, Out* to, Number* lse) const {
    clear_rows(to, a.out.stride, count, a.shape.value_width());
    for (std::size_t i = 0; i < count; ++i)
      lse[i] = -infinite<Number>;
  }

  /// With o and l of other keys and the sums s and r = sum exp(score - m) v of these: l' = log(e^l + e^m s),
  /// o' = e^(l - l') o + e^(m - l') r (Liu et al. 2023, arXiv 2310.01889, section 3).
  template <class Sees>
  SHARDWRIGHT_FUNCTION void merge_rows(const AttentionBuffers<Number>& b, std::size_t count, const Sees& sees,
                                       const Number* maxima, const Number* sums, Out* to, Number* lse) const {
    for (std::size_t i = 0; i < count; ++i) {
      if (!sees(i))
        continue;
      const Number fresh = maxima[i] + std::log(sums[i]);
      const Number larger = lse[i] > fresh ? lse[i] : fresh;
      const Number joint = larger + std::log(std::exp(lse[i] - larger) + std::exp(fresh - larger));
      const Number old_share = std::exp(lse[i] - joint);
      const Number fresh_share = std::exp(maxima[i] - joint);
      Out* row = to + i * a.out.stride;
      const Number* result = b.result + i * b.value_width;
      for_chunks<Number>(0, a.shape.value_width(), [=](auto chunk, std::size_t c) {
        chunk.store(row + c, chunk.load(row + c) * old_share + chunk.load(result + c) * fresh_share);
      });
      lse[i] = joint;
    }
  }

  /// Scores become exp(score - maximum of the query); the sums are left to the caller. The maximum is finite,
  /// so a query that sees no key has a sum of zero.
  SHARDWRIGHT_FUNCTION static void softmax(Number* scores, std::size_t keys, Number* maxima, Number* sums) {
    constexpr WholeChunk<Number> whole;
    constexpr std::size_t width = lane_count<Number>;
    Lanes<Number> best[registers];
    Lanes<Number> total[registers];
    for (std::size_t r = 0; r < registers; ++r) {
      best[r] = broadcast(lowest<Number>);
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

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
