// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Causal attention with a warp per row and a lane per element of a head: the version for devices
/// where tiles do not apply, as for float elements.

#include <shardwright/tensor/kernels/attention/device.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>

#include <cmath>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Whether a head fits into one register of a warp, and keys and values have the same width.
template <class Element> [[nodiscard]] constexpr bool has_lanes(const AttentionShape& shape) {
  return shape.value_width() == shape.head_dim &&
         shape.head_dim <= ThreadLanes<AccumulationElement<Element>>::register_width;
}

/// As AttentionForwardRow, with the values' sum in a register, rescaled when a larger score appears (Milakov
/// and Gimelshein 2018, arXiv 1805.02867).
template <class Element> struct AttentionForwardLanes {
  AttentionForwardRow<Element> a;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    using Number = AccumulationElement<Element>;
    const std::size_t i = index % a.shape.sequence;
    const AttentionHead head(a.shape, index / a.shape.sequence);
    const std::size_t seen = a.block.keys_seen(i);
    if (seen == 0)
      return;
    const std::size_t token = head.batch * a.shape.sequence + i;
    const std::size_t key_token = head.batch * a.block.keys.rows;
    for_chunks<Number>(0, a.shape.head_dim, [&](auto chunk, std::size_t) {
      const Lanes<Number> query = a.scale * chunk.load(a.qkv.row(token) + head.q_column);
      Number* const to = a.out.row(token) + head.out_column;
      Lanes<Number> values{};
      Number sum(0);
      Number best(0);
      if (a.merge) {
        values = chunk.load(to);
        sum = Number(1);
        best = a.log_sum_exp[index];
      }
      for (std::size_t j = 0; j < seen; ++j) {
        const Element* key = a.key_values.key(key_token + j, head.kv_head);
        const Number score = sum_of<Number>(query * chunk.load(key));
        if (score > best || (j == 0 && !a.merge)) {
          const Number old = j == 0 && !a.merge ? Number(0) : std::exp(best - score);
          values = values * old;
          sum *= old;
          best = score;
        }
        const Number weight = std::exp(score - best);
        sum += weight;
        values += weight * chunk.load(key + a.shape.head_dim);
      }
      chunk.store(to, values / sum);
      sync_lanes(); // all lanes have read what one overwrites
      if (first_lane())
        a.log_sum_exp[index] = best + std::log(sum);
    });
  }
};

/// As AttentionBackwardQuery.
template <class Element> struct AttentionBackwardQueryLanes {
  AttentionBackwardQuery<Element> a;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    using Number = AccumulationElement<Element>;
    const std::size_t i = index % a.shape.sequence;
    const AttentionHead head(a.shape, index / a.shape.sequence);
    const std::size_t token = head.batch * a.shape.sequence + i;
    const std::size_t key_token = head.batch * a.block.keys.rows;
    const std::size_t seen = a.block.keys_seen(i);
    for_chunks<Number>(0, a.shape.head_dim, [&](auto chunk, std::size_t) {
      const Lanes<Number> query = chunk.load(a.qkv.row(token) + head.q_column);
      const Lanes<Number> gradient = chunk.load(a.d_out.row(token) + head.out_column);
      const Number dots = sum_of<Number>(gradient * chunk.load(a.out.row(token) + head.out_column));
      Number* const to = a.d_qkv.row(token) + head.q_column;
      Lanes<Number> sum{};
      if (a.merge)
        sum = chunk.load(to);
      for (std::size_t j = 0; j < seen; ++j) {
        const Element* at = a.key_values.key(key_token + j, head.kv_head);
        const Lanes<Number> key = chunk.load(at);
        const Number p = std::exp(a.scale * sum_of<Number>(query * key) - a.log_sum_exp[index]);
        const Number slope = sum_of<Number>(gradient * chunk.load(at + a.shape.head_dim)) - dots;
        sum += a.scale * p * slope * key;
      }
      chunk.store(to, sum);
    });
  }
};

/// As AttentionBackwardKey.
template <class Element> struct AttentionBackwardKeyLanes {
  AttentionBackwardQuery<Element> a;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    using Number = AccumulationElement<Element>;
    const AttentionShape& shape = a.shape;
    const std::size_t j = index % a.block.keys.rows;
    const std::size_t group = index / a.block.keys.rows;
    const std::size_t batch = group / shape.kv_heads;
    const std::size_t kv_head = group % shape.kv_heads;
    const std::size_t row = batch * a.block.keys.rows + j;
    for_chunks<Number>(0, shape.head_dim, [&](auto chunk, std::size_t) {
      const Lanes<Number> key = chunk.load(a.key_values.key(row, kv_head));
      const Lanes<Number> value = chunk.load(a.key_values.key(row, kv_head) + shape.head_dim);
      Lanes<Number> d_key{};
      Lanes<Number> d_value{};
      for (std::size_t h = kv_head * shape.q_per_kv; h < (kv_head + 1) * shape.q_per_kv; ++h) {
        const AttentionHead head(shape, batch, h);
        for (std::size_t i = a.block.first_query(j); i < shape.sequence; ++i) {
          const std::size_t token = batch * shape.sequence + i;
          const Lanes<Number> query = chunk.load(a.qkv.row(token) + head.q_column);
          const Lanes<Number> gradient = chunk.load(a.d_out.row(token) + head.out_column);
          const Number lse = a.log_sum_exp[(batch * shape.heads() + h) * shape.sequence + i];
          const Number p = std::exp(a.scale * sum_of<Number>(query * key) - lse);
          // The gradient of the probability minus that of the row's sum.
          const Number slope =
              sum_of<Number>(gradient * (value - chunk.load(a.out.row(token) + head.out_column)));
          d_key += a.scale * p * slope * query;
          d_value += p * gradient;
        }
      }
      chunk.store(a.d_key_values.key(row, kv_head), d_key);
      chunk.store(a.d_key_values.key(row, kv_head) + shape.head_dim, d_value);
    });
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
