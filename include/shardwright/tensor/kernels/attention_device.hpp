// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Causal attention with one thread per row and no workspace: correct on any execution space, not
/// tuned.

#include <shardwright/tensor/kernels/attention_shape.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cmath>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

template <class Element>
SHARDWRIGHT_FUNCTION inline Element row_dot(const Element* a, const Element* b, std::size_t count) {
  Element sum(0);
  for (std::size_t i = 0; i < count; ++i)
    sum += a[i] * b[i];
  return sum;
}

/// Where the rows of one head lie in the fused buffers.
template <class Element>
struct AttentionHead {
  std::size_t batch;
  std::size_t head;
  std::size_t q_column;
  std::size_t k_column;
  std::size_t out_column;

  SHARDWRIGHT_FUNCTION AttentionHead(const AttentionShape& shape, std::size_t batch_index,
                                     std::size_t head_index)
      : batch(batch_index), head(head_index),
        q_column(head / shape.q_per_kv * shape.group_width() + head % shape.q_per_kv * shape.head_dim),
        k_column(head / shape.q_per_kv * shape.group_width() + shape.q_per_kv * shape.head_dim),
        out_column(head * shape.head_dim) {}
};

/// One query row per call.
template <class Element>
struct AttentionForwardRow {
  MatrixSpan<const Element> qkv;
  MatrixSpan<Element> out;
  Element* log_sum_exp;
  AttentionShape shape;
  Element scale;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    const std::size_t i = index % shape.sequence;
    const std::size_t head_index = index / shape.sequence;
    const AttentionHead<Element> head(shape, head_index / shape.heads(), head_index % shape.heads());
    const std::size_t token = head.batch * shape.sequence;
    const std::size_t d = shape.head_dim;
    const Element* q = qkv.row(token + i) + head.q_column;
    Element best = scale * row_dot(q, qkv.row(token) + head.k_column, d);
    for (std::size_t j = 1; j <= i; ++j) {
      const Element score = scale * row_dot(q, qkv.row(token + j) + head.k_column, d);
      if (score > best)
        best = score;
    }
    Element* to = out.row(token + i) + head.out_column;
    for (std::size_t c = 0; c < d; ++c)
      to[c] = Element(0);
    Element sum(0);
    for (std::size_t j = 0; j <= i; ++j) {
      const Element* k = qkv.row(token + j) + head.k_column;
      const Element weight = std::exp(scale * row_dot(q, k, d) - best);
      sum += weight;
      for (std::size_t c = 0; c < d; ++c)
        to[c] += weight * k[d + c];
    }
    for (std::size_t c = 0; c < d; ++c)
      to[c] /= sum;
    log_sum_exp[index] = best + std::log(sum);
  }
};

/// Gradient of one query row per call.
template <class Element>
struct AttentionBackwardQuery {
  MatrixSpan<const Element> qkv;
  MatrixSpan<const Element> out;
  const Element* log_sum_exp;
  MatrixSpan<const Element> d_out;
  MatrixSpan<Element> d_qkv;
  AttentionShape shape;
  Element scale;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    const std::size_t i = index % shape.sequence;
    const std::size_t head_index = index / shape.sequence;
    const AttentionHead<Element> head(shape, head_index / shape.heads(), head_index % shape.heads());
    const std::size_t token = head.batch * shape.sequence;
    const std::size_t d = shape.head_dim;
    const Element* q = qkv.row(token + i) + head.q_column;
    const Element* d_row = d_out.row(token + i) + head.out_column;
    const Element dots = row_dot(d_row, out.row(token + i) + head.out_column, d);
    Element* to = d_qkv.row(token + i) + head.q_column;
    for (std::size_t c = 0; c < d; ++c)
      to[c] = Element(0);
    for (std::size_t j = 0; j <= i; ++j) {
      const Element* k = qkv.row(token + j) + head.k_column;
      const Element p = std::exp(scale * row_dot(q, k, d) - log_sum_exp[index]);
      const Element d_score = scale * p * (row_dot(d_row, k + d, d) - dots);
      for (std::size_t c = 0; c < d; ++c)
        to[c] += d_score * k[c];
    }
  }
};

/// Gradients of one key and value row per call, summed over the query heads and rows that see it, in order.
template <class Element>
struct AttentionBackwardKey {
  AttentionBackwardQuery<Element> a;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    const AttentionShape& shape = a.shape;
    const std::size_t j = index % shape.sequence;
    const std::size_t group = index / shape.sequence;
    const std::size_t batch = group / shape.kv_heads;
    const std::size_t token = batch * shape.sequence;
    const std::size_t d = shape.head_dim;
    const std::size_t first_head = group % shape.kv_heads * shape.q_per_kv;
    const std::size_t k_column = AttentionHead<Element>(shape, batch, first_head).k_column;
    const Element* k = a.qkv.row(token + j) + k_column;
    Element* d_key = a.d_qkv.row(token + j) + k_column;
    for (std::size_t c = 0; c < 2 * d; ++c)
      d_key[c] = Element(0);
    for (std::size_t h = first_head; h < first_head + shape.q_per_kv; ++h) {
      const AttentionHead<Element> head(shape, batch, h);
      for (std::size_t i = j; i < shape.sequence; ++i) {
        const Element* q = a.qkv.row(token + i) + head.q_column;
        const Element* d_row = a.d_out.row(token + i) + head.out_column;
        const Element lse = a.log_sum_exp[(batch * shape.heads() + h) * shape.sequence + i];
        const Element p = std::exp(a.scale * row_dot(q, k, d) - lse);
        const Element dots = row_dot(d_row, a.out.row(token + i) + head.out_column, d);
        const Element d_score = a.scale * p * (row_dot(d_row, k + d, d) - dots);
        for (std::size_t c = 0; c < d; ++c) {
          d_key[c] += d_score * q[c];
          d_key[d + c] += p * d_row[c];
        }
      }
    }
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
