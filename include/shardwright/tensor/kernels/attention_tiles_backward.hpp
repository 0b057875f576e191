// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Gradients of causal attention on tensor cores, with scores computed again in registers.
///
/// FlashAttention-2 (Dao 2023, arXiv 2307.08691), algorithm 2, in two kernels: one over tiles of queries for
/// dQ, one over tiles of keys for dK and dV. That computes scores and their gradients twice, seven products
/// where one kernel has five; but no two blocks add to one number, so sums need no atomic additions and have
/// a fixed order.

#include <shardwright/tensor/kernels/attention_tiles.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// dQ of one tile of query rows of one head per block, and dots = rowsum(dO O), which the other kernel needs.
template <class Element, class Out, int dim>
struct AttentionBackwardQueryTiles {
  static constexpr unsigned warps = 4;
  static constexpr unsigned blocks_at_once = 2;
  static constexpr int tiles = dim <= 64 ? 2 : 1; // of 16 rows per warp
  static constexpr int warp_rows = 16 * tiles;
  static constexpr int rows = static_cast<int>(warps) * warp_rows;
  static constexpr int keys = dim <= 64 ? 64 : 32; // so that GPUs with 99 KiB of shared memory do
  static constexpr int part = 32;                  // of the keys, at a time
  static constexpr std::size_t shared_bytes =
      2 * SharedTile<Element, dim>::bytes(rows) + 4 * SharedTile<Element, dim>::bytes(keys);
  AttentionBackwardQuery<Element, Out> a;
  float* dots; // [batch * heads * sequence]

  [[nodiscard]] std::size_t blocks() const {
    return a.shape.batch * a.shape.heads() * blocks_of(a.shape.sequence, rows);
  }

  template <class Block>
  SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    const QueryTile tile(a.shape, a.block, block.index(), rows);
    const AttentionHead& head = tile.head;
    const std::size_t first = tile.first, count = tile.count, needed = tile.needed, token = tile.token,
                      key_token = tile.key_token;
    const std::size_t d = a.shape.head_dim;
    const std::size_t key_stride = a.key_values.tokens.stride;
    constexpr unsigned threads = warps * static_cast<unsigned>(warp_threads);
    using Tile = SharedTile<Element, dim>;
    const Tile queries{reinterpret_cast<Element*>(block.shared())};
    const Tile gradients{queries.data + rows * Tile::stride};
    const auto keys_at = [&](std::size_t step) {
      return Tile{gradients.data + (rows + static_cast<int>(step % 2) * 2 * keys) * Tile::stride};
    };
    const auto values_at = [&](std::size_t step) { return Tile{keys_at(step).data + keys * Tile::stride}; };
    const auto start = [&](std::size_t step) {
      const Element* from = a.key_values.key(key_token + step * keys, head.kv_head);
      const std::size_t here = smaller_of(keys, needed - step * keys);
      copy_tile<keys>(block, threads, keys_at(step), from, key_stride, here, d);
      copy_tile<keys>(block, threads, values_at(step), from + d, key_stride, here, d);
    };
    const std::size_t steps = blocks_of(needed, keys);
    copy_tile<rows>(block, threads, queries, a.qkv.row(token) + head.q_column, a.qkv.stride, count, d);
    copy_tile<rows>(block, threads, gradients, a.d_out.row(token) + head.out_column, a.d_out.stride, count,
                    d);
    if (steps != 0)
      start(0);
    block.end_copies();

    const std::size_t warp_first = block.warp() * static_cast<std::size_t>(warp_rows);
    const bool idle = warp_first >= count;
    const std::size_t seen_by_any =
        idle ? 0 : a.block.keys_seen(first + smaller_of(warp_first + warp_rows, count) - 1);
    const std::size_t saved =
        (head.batch * a.shape.heads() + head.head) * a.shape.sequence + first + warp_first;
    Registers<std::uint32_t, 2 * tiles> seen; // keys, by row
    RowNumbers shift;                         // log_sum_exp, of base 2
    each_thread([&](unsigned thread) {
      for_rows<tiles>(thread, [&](std::size_t row, int r) {
        const bool inside = warp_first + row < count;
        seen(thread, r) =
            inside ? static_cast<std::uint32_t>(a.block.keys_seen(first + warp_first + row)) : 0u;
        shift(thread, r) = inside ? a.log_sum_exp[saved + row] * tiles_log2e : tiles_infinity;
      });
    });
    block.template wait_for_copies<0>();
    block.barrier();
    Registers<std::uint32_t, tiles * dim / 4> left;
    Registers<std::uint32_t, tiles * dim / 4> left_gradients;
    load_rows<Element, dim, tiles>(left, queries, static_cast<int>(warp_first));
    load_rows<Element, dim, tiles>(left_gradients, gradients, static_cast<int>(warp_first));
    RowNumbers row_dots;
    multiply_outputs(row_dots, left_gradients, head, first + warp_first,
                     count - smaller_of(count, warp_first));
    each_thread([&](unsigned thread) {
      for_rows<tiles>(thread, [&](std::size_t row, int r) {
        if (thread % 4 == 0 && warp_first + row < count)
          dots[saved + row] = row_dots(thread, r);
      });
    });

    Registers<float, tiles * dim / 2> sums;
    set_registers(sums, 0.0f);
    for (std::size_t step = 0; step < steps; ++step) {
      if (step + 1 < steps)
        start(step + 1);
      block.end_copies();
      block.template wait_for_copies<1>();
      block.barrier();
      for (int p = 0; p < keys; p += part) {
        const std::size_t key = step * keys + static_cast<std::size_t>(p);
        if (key >= seen_by_any)
          break;
        Registers<float, tiles * part / 2> scores;
        Registers<float, tiles * part / 2> slopes;
        multiply_rows<Element, dim, tiles, part / 8>(scores, left, keys_at(step), p);
        multiply_rows<Element, dim, tiles, part / 8>(slopes, left_gradients, values_at(step), p);
        score_gradients(scores, slopes, shift, row_dots, seen, static_cast<std::uint32_t>(key));
        add_weighted_rows<Element, dim, tiles, part / 8>(sums, slopes, keys_at(step), p);
      }
      block.barrier(); // before the next copy but one takes its place
    }
    each_thread([&](unsigned thread) {
      for_rows<tiles>(thread, [&](std::size_t row, int r) {
        if (warp_first + row >= count)
          return;
        Out* const to = a.d_qkv.row(token + warp_first + row) + head.q_column;
        SHARDWRIGHT_UNROLL for (int n = 0; n < dim / 8; ++n) {
          const std::size_t column = 8 * static_cast<std::size_t>(n) + thread % 4 * 2;
          const int at = (r / 2 * dim / 8 + n) * 4 + r % 2 * 2;
          if (column < d)
            store_pair(to + column, sums(thread, at) * a.scale, sums(thread, at + 1) * a.scale,
                       a.merge ? 1.0f : 0.0f);
        }
      });
    });
  }

private:
  using RowNumbers = Registers<float, 2 * tiles>;

  /// Row sums of dO O, for a warp's rows of dO as a left factor and `count` rows of O in memory.
  SHARDWRIGHT_FUNCTION void multiply_outputs(RowNumbers& sums,
                                             const Registers<std::uint32_t, tiles * dim / 4>& left,
                                             const AttentionHead& head, std::size_t first,
                                             std::size_t count) const {
    each_thread([&](unsigned thread) {
      for_rows<tiles>(thread, [&](std::size_t row, int r) {
        float sum = 0;
        if (row < count) {
          const Element* from = a.out.row(head.batch * a.shape.sequence + first + row) + head.out_column;
          SHARDWRIGHT_UNROLL for (int n = 0; n < dim / 8; ++n) {
            const std::size_t column = 8 * static_cast<std::size_t>(n) + thread % 4 * 2;
            if (column < a.shape.head_dim) {
              const auto pair = ThreadGroup<float, 2>::load(from + column, 2);
              const std::uint32_t word = left(thread, (r / 2 * dim / 16 + n / 2) * 4 + n % 2 * 2 + r % 2);
              sum += pair.v[0] * unpacked<Element>(word, 0) + pair.v[1] * unpacked<Element>(word, 1);
            }
          }
        }
        sums(thread, r) = sum;
      });
    });
    combine_rows(sums, Plus{});
  }

  /// Gradients of probabilities become those of scores, P (dP - dots), with P = exp(scale scores - shift).
  SHARDWRIGHT_FUNCTION void score_gradients(const Registers<float, tiles * part / 2>& scores,
                                            Registers<float, tiles * part / 2>& slopes,
                                            const RowNumbers& shift, const RowNumbers& row_dots,
                                            const Registers<std::uint32_t, 2 * tiles>& seen,
                                            std::uint32_t first_key) const {
    const float factor = a.scale * tiles_log2e;
    each_thread([&](unsigned thread) {
      SHARDWRIGHT_UNROLL for (int i = 0; i < tiles * part / 2; ++i) {
        const int row = i / (part / 2) * 2 + i % 4 / 2;
        const auto n = static_cast<unsigned>(i / 4 % (part / 8));
        const std::uint32_t key = first_key + 8 * n + thread % 4 * 2 + static_cast<unsigned>(i % 2);
        const float weight = fast_exp2(scores(thread, i) * factor - shift(thread, row));
        slopes(thread, i) =
            key < seen(thread, row) ? weight * (slopes(thread, i) - row_dots(thread, row)) : 0.0f;
      }
    });
  }
};

/// dK and dV of one tile of keys of one key-value head per block, over all its query heads and the rows that
/// see the keys, in order. Scores stand the other way round, [keys, queries], so that they are left factors
/// of the products with dO and Q.
template <class Element, class Out, int dim>
struct AttentionBackwardKeyTiles {
  static constexpr unsigned warps = 4;
  static constexpr unsigned blocks_at_once = dim <= 64 ? 3 : 2;
  static constexpr int rows = 16 * static_cast<int>(warps); // keys
  static constexpr int queries = dim <= 64 ? 64 : 32;
  static constexpr int part = 32; // of the queries, at a time
  static constexpr std::size_t shared_bytes = 2 * SharedTile<Element, dim>::bytes(rows) +
                                              4 * SharedTile<Element, dim>::bytes(queries) +
                                              4 * queries * sizeof(float);
  AttentionBackwardQuery<Element, Out> a;
  const float* dots; // [batch * heads * sequence]

  [[nodiscard]] std::size_t blocks() const {
    return a.shape.batch * a.shape.kv_heads * blocks_of(a.block.keys.rows, rows);
  }

  template <class Block>
  SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    const std::size_t key_tiles = blocks_of(a.block.keys.rows, rows);
    const std::size_t group = block.index() / key_tiles;
    const std::size_t batch = group / a.shape.kv_heads;
    const std::size_t kv_head = group % a.shape.kv_heads;
    const std::size_t first = block.index() % key_tiles * rows;
    const std::size_t count = smaller_of(rows, a.block.keys.rows - first);
    const std::size_t d = a.shape.head_dim;
    const std::size_t key_token = batch * a.block.keys.rows + first;
    const std::size_t key_stride = a.key_values.tokens.stride;
    // Query rows before these see none of the keys.
    const std::size_t first_tile = a.block.first_query(first) / queries;
    const std::size_t last_tile = blocks_of(a.shape.sequence, queries);
    const std::size_t row_tiles = first_tile < last_tile ? last_tile - first_tile : 0;
    const std::size_t steps = a.shape.q_per_kv * row_tiles;
    constexpr unsigned threads = warps * static_cast<unsigned>(warp_threads);
    using Tile = SharedTile<Element, dim>;
    const Tile keys{reinterpret_cast<Element*>(block.shared())};
    const Tile values{keys.data + rows * Tile::stride};
    float* const numbers = reinterpret_cast<float*>(values.data + (rows + 4 * queries) * Tile::stride);
    const auto queries_at = [&](std::size_t step) {
      return Tile{values.data + (rows + static_cast<int>(step % 2) * 2 * queries) * Tile::stride};
    };
    const auto gradients_at = [&](std::size_t step) {
      return Tile{queries_at(step).data + queries * Tile::stride};
    };
    const auto shift_at = [&](std::size_t step) { return numbers + step % 2 * 2 * queries; };
    const auto start = [&](std::size_t step) {
      const AttentionHead head(a.shape, batch, kv_head * a.shape.q_per_kv + step / row_tiles);
      const std::size_t row = (first_tile + step % row_tiles) * queries;
      const std::size_t here = smaller_of(queries, a.shape.sequence - row);
      const std::size_t token = batch * a.shape.sequence + row;
      copy_tile<queries>(block, threads, queries_at(step), a.qkv.row(token) + head.q_column, a.qkv.stride,
                         here, d);
      copy_tile<queries>(block, threads, gradients_at(step), a.d_out.row(token) + head.out_column,
                         a.d_out.stride, here, d);
      const std::size_t saved = (batch * a.shape.heads() + head.head) * a.shape.sequence + row;
      each_thread([&](unsigned thread) {
        const std::size_t i = block.warp() * warp_threads + thread;
        if (i < queries) {
          // Rows past the end have the probability exp(0 - infinity) = 0.
          shift_at(step)[i] = i < here ? a.log_sum_exp[saved + i] * tiles_log2e : tiles_infinity;
          shift_at(step)[queries + i] = i < here ? dots[saved + i] : 0.0f;
        }
      });
    };
    copy_tile<rows>(block, threads, keys, a.key_values.key(key_token, kv_head), key_stride, count, d);
    copy_tile<rows>(block, threads, values, a.key_values.key(key_token, kv_head) + d, key_stride, count, d);
    if (steps != 0)
      start(0);
    block.end_copies();

    const std::size_t warp_first = block.warp() * std::size_t{16};
    Registers<std::uint32_t, 2> sees; // the first query that does, by row
    each_thread([&](unsigned thread) {
      for_rows<1>(thread, [&](std::size_t row, int r) {
        const std::size_t key = warp_first + row;
        sees(thread, r) =
            key < count ? static_cast<std::uint32_t>(a.block.first_query(first + key)) : ~std::uint32_t{0};
      });
    });
    const std::size_t seen_from =
        warp_first < count ? a.block.first_query(first + warp_first) : a.shape.sequence;
    Registers<std::uint32_t, dim / 4> left;
    Registers<std::uint32_t, dim / 4> left_values;
    Registers<float, dim / 2> d_keys;
    Registers<float, dim / 2> d_values;
    set_registers(d_keys, 0.0f);
    set_registers(d_values, 0.0f);
    for (std::size_t step = 0; step < steps; ++step) {
      if (step + 1 < steps)
        start(step + 1);
      block.end_copies();
      block.template wait_for_copies<1>();
      block.barrier();
      if (step == 0) {
        load_rows<Element, dim, 1>(left, keys, static_cast<int>(warp_first));
        load_rows<Element, dim, 1>(left_values, values, static_cast<int>(warp_first));
      }
      for (int p = 0; p < queries; p += part) {
        const std::size_t row = (first_tile + step % row_tiles) * queries + static_cast<std::size_t>(p);
        if (row + part <= seen_from)
          continue;
        Registers<float, part / 2> scores;
        Registers<float, part / 2> slopes;
        multiply_rows<Element, dim, 1, part / 8>(scores, left, queries_at(step), p);
        multiply_rows<Element, dim, 1, part / 8>(slopes, left_values, gradients_at(step), p);
        score_gradients(scores, slopes, shift_at(step) + p, sees, static_cast<std::uint32_t>(row));
        add_weighted_rows<Element, dim, 1, part / 8>(d_values, scores, gradients_at(step), p);
        add_weighted_rows<Element, dim, 1, part / 8>(d_keys, slopes, queries_at(step), p);
      }
      block.barrier(); // before the next copy but one takes its place
    }
    block.template wait_for_copies<0>(); // of keys that no query sees
    each_thread([&](unsigned thread) {
      for_rows<1>(thread, [&](std::size_t row, int r) {
        if (warp_first + row >= count)
          return;
        Out* const to = a.d_key_values.key(key_token + warp_first + row, kv_head);
        SHARDWRIGHT_UNROLL for (int n = 0; n < dim / 8; ++n) {
          const std::size_t column = 8 * static_cast<std::size_t>(n) + thread % 4 * 2;
          const int at = n * 4 + r * 2;
          if (column < d) {
            store_pair(to + column, d_keys(thread, at) * a.scale, d_keys(thread, at + 1) * a.scale, 0);
            store_pair(to + d + column, d_values(thread, at), d_values(thread, at + 1), 0);
          }
        }
      });
    });
  }

private:
  /// Neighbours in shared memory.
  struct alignas(8) FloatPair {
    float v[2];
  };

  /// Scores become probabilities P, and gradients of probabilities P (dP - dots): rows are keys, columns
  /// queries, whose shifts and dots are in shared memory.
  SHARDWRIGHT_FUNCTION void score_gradients(Registers<float, part / 2>& scores,
                                            Registers<float, part / 2>& slopes, const float* shift,
                                            const Registers<std::uint32_t, 2>& sees,
                                            std::uint32_t first_row) const {
    const float factor = a.scale * tiles_log2e;
    each_thread([&](unsigned thread) {
      SHARDWRIGHT_UNROLL for (int pair = 0; pair < part / 4; ++pair) {
        const unsigned column = 8 * static_cast<unsigned>(pair / 2) + thread % 4 * 2;
        const auto shifts = *reinterpret_cast<const FloatPair*>(shift + column);
        const auto row_dots = *reinterpret_cast<const FloatPair*>(shift + queries + column);
        SHARDWRIGHT_UNROLL for (int k = 0; k < 2; ++k) {
          const int i = 2 * pair + k;
          const bool visible = first_row + column + static_cast<unsigned>(k) >= sees(thread, pair % 2);
          const float weight = visible ? fast_exp2(scores(thread, i) * factor - shifts.v[k]) : 0.0f;
          scores(thread, i) = weight;
          slopes(thread, i) = visible ? weight * (slopes(thread, i) - row_dots.v[k]) : 0.0f;
        }
      }
    });
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
