// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Gradients of attention on a host core, with any mask, in the blocks of host.hpp.

#include <shardwright/tensor/kernels/attention/host.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Gradient by recomputed probabilities P = exp(S - log_sum_exp): dV = P' dO, dS = P (dO V' - rowsum(dO O)),
/// dQ = scale dS K, dK = scale dS' Q (Dao et al. 2022, arXiv 2205.14135, appendix B).
///
/// `out` and `log_sum_exp` are those of all keys, so gradients of blocks of keys add up. `merge` adds dQ to
/// the gradient from other keys in `d_qkv`; dK and dV are overwritten. Of queries that see no key, dQ is
/// zero.
template <class Element, class Out = Element> struct AttentionBackward {
  using Number = AccumulationElement<Element>;
  static constexpr std::size_t rows = attention_rows;
  static constexpr std::size_t registers = attention_rows / lane_count<Number>;
  AttentionBackwardQuery<Element, Out, AttentionBlock> a;
  Number* workspace;
  std::size_t workers;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t worker) const {
    const auto buffers = AttentionBuffers<Number>::carve(
        workspace + worker * AttentionBuffers<Number>::size(a.shape, true), a.shape, true);
    for (std::size_t unit = worker; unit < a.shape.batch * a.shape.kv_heads; unit += workers)
      group(unit, buffers);
  }

private:
  SHARDWRIGHT_FUNCTION void group(std::size_t unit, const AttentionBuffers<Number>& b) const {
    const std::size_t batch = unit / a.shape.kv_heads;
    const std::size_t kv_head = unit % a.shape.kv_heads;
    const std::size_t token = batch * a.block.keys.rows;
    const AttentionBlock own = a.block.of(batch);
    pack_head(a.key_values, token, kv_head, own.seen(batch), a.shape, b);
    for (std::size_t i = 0; i < a.block.keys.rows * b.width; ++i)
      b.d_keys[i] = Number(0);
    for (std::size_t i = 0; i < a.block.keys.rows * b.value_width; ++i)
      b.d_values[i] = Number(0);
    for (std::size_t h = 0; h < a.shape.q_per_kv; ++h) {
      std::size_t count = 0;
      for (std::size_t first = a.merge ? own.first_query(0) : 0; first < a.shape.sequence; first += count) {
        count = own.rows_at_once(first, rows);
        row_block(own, batch, kv_head, h, first, count, b);
      }
    }
    const auto one = [](std::size_t) { return Number(1); };
    Out* d_keys = a.d_key_values.key(token, kv_head);
    const std::size_t stride = a.d_key_values.tokens.stride;
    unpack_rows(b.d_keys, b.width, a.block.keys.rows, a.shape.head_dim, one, d_keys, stride);
    unpack_rows(b.d_values, b.value_width, a.block.keys.rows, a.shape.value_width(), one,
                d_keys + a.shape.head_dim, stride);
  }

  SHARDWRIGHT_FUNCTION void row_block(const AttentionBlock& own, std::size_t batch, std::size_t kv_head,
                                      std::size_t h, std::size_t first, std::size_t count,
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
    product_in_tiles<TileStore::accumulate, Number>(keys, b.value_width, rows, {b.scores, rows, 1}, b.d_out,
                                                    b.value_width, b.d_values + values, b.value_width);
    product_in_tiles<TileStore::accumulate, Number>(keys, b.width, rows, {b.d_scores, rows, 1}, b.queries,
                                                    b.width, b.d_keys + at, b.width);
    product_in_tiles<TileStore::assign, Number>(rows, b.width, keys, {b.d_scores, 1, rows}, b.keys + at,
                                                b.width, b.result, b.width);
    const auto factor = [by = a.scale](std::size_t) { return by; };
    if (a.merge)
      unpack_rows<TileStore::accumulate>(b.result, b.width, count, a.shape.head_dim, factor, d_queries,
                                         a.d_qkv.stride);
    else
      unpack_rows(b.result, b.width, count, a.shape.head_dim, factor, d_queries, a.d_qkv.stride);
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
