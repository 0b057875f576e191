// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention with one thread per row and no workspace: correct on any execution space, not tuned.

#include <shardwright/tensor/kernels/attention/shape.hpp>
#include <shardwright/tensor/kernels/attention/work.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cmath>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

template <class Element>
SHARDWRIGHT_FUNCTION inline AccumulationElement<Element> row_dot(const Element* a, const Element* b,
                                                                 std::size_t count) {
  AccumulationElement<Element> sum(0);
  for (std::size_t i = 0; i < count; ++i)
    sum += a[i] * b[i];
  return sum;
}

/// The positions of one head's rows.
struct AttentionHead {
  std::size_t batch;
  std::size_t head;
  std::size_t kv_head;
  std::size_t q_column;
  std::size_t out_column;

  SHARDWRIGHT_FUNCTION AttentionHead(const AttentionShape& shape, std::size_t batch_index,
                                     std::size_t head_index)
      : batch(batch_index), head(head_index), kv_head(head / shape.q_per_kv),
        q_column(kv_head * shape.group_width() + head % shape.q_per_kv * shape.head_dim),
        out_column(head * shape.value_width()) {}
  /// Heads counted over the batch.
  SHARDWRIGHT_FUNCTION AttentionHead(const AttentionShape& shape, std::size_t index)
      : AttentionHead(shape, index / shape.heads(), index % shape.heads()) {}
};

/// One query row per call, and the arguments of every forward kernel: AttentionForward says what `merge`
/// does. It sums in place, so calls need outputs and gradients of the AccumulationElement. `Form` is that of
/// the block.
template <class Element, class Out = AccumulationElement<Element>, class Form = CausalBlock>
struct AttentionForwardRow {
  using Number = AccumulationElement<Element>;
  MatrixSpan<const Element> qkv;
  KeyValueSpan<const Element> key_values;
  MatrixSpan<Out> out;
  Number* log_sum_exp;
  AttentionShape shape;
  Form block;
  bool merge;
  Number scale;

  /// The same with another form of the block.
  template <class Other>
  [[nodiscard]] AttentionForwardRow<Element, Out, Other> with(const Other& other) const {
    return {qkv, key_values, out, log_sum_exp, shape, other, merge, scale};
  }

  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    const std::size_t i = index % shape.sequence;
    const AttentionHead head(shape, index / shape.sequence);
    const Form own = block.of(head.batch);
    const RowRange seen{own.first_key(i), own.end_key(i)};
    if (seen.empty())
      return;
    const std::size_t token = head.batch * shape.sequence + i;
    const std::size_t key_token = head.batch * block.keys.rows;
    const std::size_t d = shape.head_dim, values = shape.value_width();
    const Element* q = qkv.row(token) + head.q_column;
    Number best = merge ? log_sum_exp[index]
                        : scale * row_dot(q, key_values.key(key_token + seen.begin, head.kv_head), d);
    for (std::size_t j = seen.begin; j < seen.end; ++j) {
      const Number score = scale * row_dot(q, key_values.key(key_token + j, head.kv_head), d);
      if (score > best)
        best = score;
    }
    Number* to = out.row(token) + head.out_column;
    Number sum = merge ? std::exp(log_sum_exp[index] - best) : Number(0);
    for (std::size_t c = 0; c < values; ++c)
      to[c] = merge ? to[c] * sum : Number(0);
    for (std::size_t j = seen.begin; j < seen.end; ++j) {
      const Element* k = key_values.key(key_token + j, head.kv_head);
      const Number weight = std::exp(scale * row_dot(q, k, d) - best);
      sum += weight;
      for (std::size_t c = 0; c < values; ++c)
        to[c] += weight * k[d + c];
    }
    for (std::size_t c = 0; c < values; ++c)
      to[c] /= sum;
    log_sum_exp[index] = best + std::log(sum);
  }
};

/// Gradient of one query row per call, and the arguments of every backward kernel, as AttentionBackward says.
template <class Element, class Out = AccumulationElement<Element>, class Form = CausalBlock>
struct AttentionBackwardQuery {
  using Number = AccumulationElement<Element>;
  MatrixSpan<const Element> qkv;
  KeyValueSpan<const Element> key_values;
  MatrixSpan<const Element> out;
  const Number* log_sum_exp;
  MatrixSpan<const Element> d_out;
  MatrixSpan<Out> d_qkv;
  KeyValueSpan<Out> d_key_values;
  AttentionShape shape;
  Form block;
  bool merge;
  Number scale;
  Rotation<Number> undone{}; ///< Only tiles undo it; see tiles_undo.

  /// The same with another form of the block.
  template <class Other>
  [[nodiscard]] AttentionBackwardQuery<Element, Out, Other> with(const Other& other) const {
    return {qkv,          key_values, out,   log_sum_exp, d_out, d_qkv,
            d_key_values, shape,      other, merge,       scale, undone};
  }

  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    const std::size_t i = index % shape.sequence;
    const AttentionHead head(shape, index / shape.sequence);
    const std::size_t token = head.batch * shape.sequence + i;
    const std::size_t key_token = head.batch * block.keys.rows;
    const std::size_t d = shape.head_dim, values = shape.value_width();
    const Element* q = qkv.row(token) + head.q_column;
    const Element* d_row = d_out.row(token) + head.out_column;
    const Number dots = row_dot(d_row, out.row(token) + head.out_column, values);
    Number* to = d_qkv.row(token) + head.q_column;
    for (std::size_t c = 0; c < d && !merge; ++c)
      to[c] = Number(0);
    const Form own = block.of(head.batch);
    const std::size_t end = own.end_key(i);
    for (std::size_t j = own.first_key(i); j < end; ++j) {
      const Element* k = key_values.key(key_token + j, head.kv_head);
      const Number p = std::exp(scale * row_dot(q, k, d) - log_sum_exp[index]);
      const Number d_score = scale * p * (row_dot(d_row, k + d, values) - dots);
      for (std::size_t c = 0; c < d; ++c)
        to[c] += d_score * k[c];
    }
  }
};

/// Gradients of one key and value row per call, summed over the query heads and rows that see it, in order.
template <class Element, class Form = CausalBlock> struct AttentionBackwardKey {
  using Number = AccumulationElement<Element>;
  AttentionBackwardQuery<Element, Number, Form> a;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    const AttentionShape& shape = a.shape;
    const std::size_t j = index % a.block.keys.rows;
    const std::size_t group = index / a.block.keys.rows;
    const std::size_t batch = group / shape.kv_heads;
    const std::size_t kv_head = group % shape.kv_heads;
    const std::size_t token = batch * shape.sequence;
    const std::size_t d = shape.head_dim, values = shape.value_width();
    const Element* k = a.key_values.key(batch * a.block.keys.rows + j, kv_head);
    Number* d_key = a.d_key_values.key(batch * a.block.keys.rows + j, kv_head);
    for (std::size_t c = 0; c < d + values; ++c)
      d_key[c] = Number(0);
    const Form own = a.block.of(batch);
    const RowRange queries{own.first_query(j), own.end_query(j)};
    for (std::size_t h = kv_head * shape.q_per_kv; h < (kv_head + 1) * shape.q_per_kv; ++h) {
      const AttentionHead head(shape, batch, h);
      for (std::size_t i = queries.begin; i < queries.end; ++i) {
        const Element* q = a.qkv.row(token + i) + head.q_column;
        const Element* d_row = a.d_out.row(token + i) + head.out_column;
        const Number lse = a.log_sum_exp[(batch * shape.heads() + h) * shape.sequence + i];
        const Number p = std::exp(a.scale * row_dot(q, k, d) - lse);
        const Number dots = row_dot(d_row, a.out.row(token + i) + head.out_column, values);
        const Number d_score = a.scale * p * (row_dot(d_row, k + d, values) - dots);
        for (std::size_t c = 0; c < d; ++c)
          d_key[c] += d_score * q[c];
        for (std::size_t c = 0; c < values; ++c)
          d_key[d + c] += p * d_row[c];
      }
    }
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
