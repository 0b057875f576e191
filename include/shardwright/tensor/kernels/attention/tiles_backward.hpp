// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Gradients of attention on tensor cores, with scores recomputed in registers.
///
/// FlashAttention-2 (Dao 2023, arXiv 2307.08691), algorithm 2, in two kernels: one over tiles of queries for
/// dQ, one over tiles of keys for dK and dV. Scores and their gradients are thus computed twice, with seven
/// products where a single kernel needs five; but no two blocks add to the same number, so sums need no
/// atomic additions and have a fixed order.

#include <shardwright/tensor/kernels/attention/tiles.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// dQ of one tile of query rows of one head per block, and dots = rowsum(dO O), which the other kernel needs.
template <class Element, class Out, int dim, class Form = CausalBlock> struct AttentionBackwardQueryTiles {
  static constexpr unsigned warps = 4;
  static constexpr unsigned blocks_at_once = 2;
  static constexpr int tiles = dim <= 64 ? 2 : 1; // of 16 rows per warp
  static constexpr int warp_rows = 16 * tiles;
  static constexpr int rows = static_cast<int>(warps) * warp_rows;
  static constexpr int keys = dim <= 64 ? 64 : 32; // so that GPUs with 99 KiB of shared memory do
  static constexpr int part = 32;                  // of the keys, at a time
  static constexpr std::size_t shared_bytes =
      2 * SharedTile<Element, dim>::bytes(rows) + 4 * SharedTile<Element, dim>::bytes(keys);
  AttentionBackwardQuery<Element, Out, Form> a;
  float* dots; // [batch * heads * sequence]

  [[nodiscard]] std::size_t blocks() const {
    return a.shape.batch * a.shape.heads() * blocks_of(a.shape.sequence, rows);
  }

  // One function: the scores and sums of its loop live in registers, which a call would spill.
  template <class Block> SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    const QueryTile<Form> tile(a.shape, a.block, block.index(), rows);
    const AttentionHead& head = tile.head;
    const std::size_t first = tile.first, count = tile.count, needed = tile.needed, token = tile.token,
                      key_token = tile.key_token;
    const std::size_t d = a.shape.head_dim;
    const std::size_t key_stride = a.key_values.tokens.stride;
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
      copy_tile<keys, warps>(block, keys_at(step), from, key_stride, here, d);
      copy_tile<keys, warps>(block, values_at(step), from + d, key_stride, here, d);
    };
    const std::size_t steps = blocks_of(needed, keys);
    copy_tile<rows, warps>(block, queries, a.qkv.row(token) + head.q_column, a.qkv.stride, count, d);
    copy_tile<rows, warps>(block, gradients, a.d_out.row(token) + head.out_column, a.d_out.stride, count, d);
    if (steps != 0)
      start(0);
    block.end_copies();

    const std::size_t warp_first = block.warp() * static_cast<std::size_t>(warp_rows);
    const bool idle = warp_first >= count;
    const RowRange by_first = idle ? RowRange{} : tile.keys_of(warp_first);
    const RowRange by_last = idle ? RowRange{} : tile.keys_of(smaller_of(warp_first + warp_rows, count) - 1);
    const std::size_t saved =
        (head.batch * a.shape.heads() + head.head) * a.shape.sequence + first + warp_first;
    Registers<std::uint32_t, 2 * tiles> begun; // the first key, by row
    Registers<std::uint32_t, 2 * tiles> seen;  // the end of the keys
    RowNumbers shift;                          // log_sum_exp, of base 2
    each_thread([&](unsigned thread) {
      for_rows<tiles>(thread, [&](std::size_t row, int r) {
        const bool inside = warp_first + row < count;
        const RowRange own = inside ? tile.keys_of(warp_first + row) : RowRange{};
        begun(thread, r) = static_cast<std::uint32_t>(own.begin);
        seen(thread, r) = static_cast<std::uint32_t>(own.end);
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
    multiply_outputs(row_dots, left_gradients, head, token, warp_first, count);
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
        if (key >= by_last.end)
          break;
        if (!Form::one_sided && key + part <= by_first.begin)
          continue;
        Registers<float, tiles * part / 2> scores;
        Registers<float, tiles * part / 2> slopes;
        multiply_rows<Element, dim, tiles, part / 8>(scores, left, keys_at(step), p);
        multiply_rows<Element, dim, tiles, part / 8>(slopes, left_gradients, values_at(step), p);
        if (key + part > by_first.end || (!Form::one_sided && key < by_last.begin))
          hide_scores<part / 8>(scores, [&](unsigned thread, int row, unsigned column) {
            const std::uint32_t at = static_cast<std::uint32_t>(key) + column;
            return at >= seen(thread, row) || at < begun(thread, row);
          });
        score_gradients(scores, slopes, shift, row_dots);
        add_weighted_rows<Element, dim, tiles, part / 8>(sums, slopes, keys_at(step), p);
      }
      block.barrier(); // before the next copy but one takes its place
    }
    each_thread([&](unsigned thread) {
      for_rows<tiles>(thread, [&](std::size_t row, int r) {
        if (warp_first + row >= count)
          return;
        const auto pair = [&](int n) {
          const int at = (r / 2 * dim / 8 + n) * 4 + r % 2 * 2;
          return ThreadGroup<float, 2>{{sums(thread, at), sums(thread, at + 1)}};
        };
        store_gradient<dim>(a.d_qkv.row(token + warp_first + row) + head.q_column, thread, d, pair, a.scale,
                            may_merge<Out> && a.merge ? 1.0f : 0.0f, a.undone, first + warp_first + row);
      });
    });
  }

private:
  using RowNumbers = Registers<float, 2 * tiles>;

  /// Row sums of dO O, for a warp's rows of dO as a left factor and those of O in memory, from row `first` of
  /// a tile of `count` rows on. Rows outside meet a zero of dO, so that loads need no branch and are all in
  /// flight together.
  SHARDWRIGHT_FUNCTION void multiply_outputs(RowNumbers& sums,
                                             const Registers<std::uint32_t, tiles * dim / 4>& left,
                                             const AttentionHead& head, std::size_t token, std::size_t first,
                                             std::size_t count) const {
    each_thread([&](unsigned thread) {
      for_rows<tiles>(thread, [&](std::size_t row, int r) {
        const std::size_t inside = first + row < count ? first + row : 0;
        const Element* from = a.out.row(token + inside) + head.out_column;
        float sum = 0;
        SHARDWRIGHT_UNROLL for (int n = 0; n < dim / 8; ++n) {
          const std::size_t column = 8 * static_cast<std::size_t>(n) + thread % 4 * 2;
          const auto pair =
              ThreadGroup<float, 2>::load_whole(from + (column < a.shape.head_dim ? column : 0));
          const std::uint32_t word = left(thread, (r / 2 * dim / 16 + n / 2) * 4 + n % 2 * 2 + r % 2);
          sum += pair.v[0] * unpacked<Element>(word, 0) + pair.v[1] * unpacked<Element>(word, 1);
        }
        sums(thread, r) = sum;
      });
    });
    combine_rows(sums, Plus{});
  }

  /// Gradients of probabilities become those of scores, P (dP - dots), with P = exp(scale scores - shift).
  SHARDWRIGHT_FUNCTION void score_gradients(const Registers<float, tiles * part / 2>& scores,
                                            Registers<float, tiles * part / 2>& slopes,
                                            const RowNumbers& shift, const RowNumbers& row_dots) const {
    const float factor = a.scale * tiles_log2e;
    each_thread([&](unsigned thread) {
      SHARDWRIGHT_UNROLL for (int i = 0; i < tiles * part / 2; ++i) {
        const int row = i / (part / 2) * 2 + i % 4 / 2;
        const float weight = fast_exp2(scores(thread, i) * factor - shift(thread, row));
        slopes(thread, i) = weight * (slopes(thread, i) - row_dots(thread, row));
      }
    });
  }
};

/// dK and dV of one tile of keys of one key-value head per block, over all its query heads and the rows that
/// see the keys, in order. Scores are transposed, [keys, queries], so that they are left factors of the
/// products with dO and Q.
template <class Element, class Out, int dim, class Form = CausalBlock> struct AttentionBackwardKeyTiles {
  static constexpr unsigned warps = 4;
  static constexpr unsigned blocks_at_once = dim <= 64 ? 3 : 2;
  static constexpr int rows = 16 * static_cast<int>(warps); // keys
  static constexpr int queries = dim <= 64 ? 64 : 32;
  static constexpr int part = 32; // of the queries, at a time
  static constexpr std::size_t shared_bytes = 2 * SharedTile<Element, dim>::bytes(rows) +
                                              4 * SharedTile<Element, dim>::bytes(queries) +
                                              4 * queries * sizeof(float);
  AttentionBackwardQuery<Element, Out, Form> a;
  const float* dots; // [batch * heads * sequence]

  [[nodiscard]] std::size_t blocks() const {
    return a.shape.batch * a.shape.kv_heads * blocks_of(a.block.keys.rows, rows);
  }

  // One function: the scores and sums of its loop live in registers, which a call would spill.
  template <class Block> SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    const std::size_t key_tiles = blocks_of(a.block.keys.rows, rows);
    const std::size_t group = block.index() / key_tiles;
    const std::size_t batch = group / a.shape.kv_heads;
    const std::size_t kv_head = group % a.shape.kv_heads;
    const std::size_t first = block.index() % key_tiles * rows;
    const std::size_t count = smaller_of(rows, a.block.keys.rows - first);
    const std::size_t d = a.shape.head_dim;
    const std::size_t key_token = batch * a.block.keys.rows + first;
    const std::size_t key_stride = a.key_values.tokens.stride;
    // Query rows outside these see none of the keys. Row indices are short integers, because they stay in
    // registers all the time.
    const Form own = a.block.of(batch);
    const auto end_row = static_cast<std::uint32_t>(own.end_query(first + count - 1));
    const auto first_row = static_cast<std::uint32_t>(own.first_query(first) / queries * queries);
    const auto steps =
        first_row < end_row
            ? static_cast<std::uint32_t>(a.shape.q_per_kv * blocks_of(end_row - first_row, queries))
            : 0u;
    using Tile = SharedTile<Element, dim>;
    const Tile keys{reinterpret_cast<Element*>(block.shared())};
    const Tile values{keys.data + rows * Tile::stride};
    float* const numbers = reinterpret_cast<float*>(values.data + (rows + 4 * queries) * Tile::stride);
    const auto queries_at = [&](std::uint32_t step) {
      return Tile{values.data + (rows + static_cast<int>(step % 2) * 2 * queries) * Tile::stride};
    };
    const auto gradients_at = [&](std::uint32_t step) {
      return Tile{queries_at(step).data + queries * Tile::stride};
    };
    const auto shift_at = [&](std::uint32_t step) { return numbers + step % 2 * 2 * queries; };
    const AttentionHead first_head(a.shape, batch, kv_head * a.shape.q_per_kv);
    QueryRows next{0, first_row};
    const auto start = [&](std::uint32_t step) {
      const std::size_t here = smaller_of(queries, end_row - next.row);
      const std::size_t token = batch * a.shape.sequence + next.row;
      const std::size_t column = next.head * d;
      copy_tile<queries, warps>(block, queries_at(step), a.qkv.row(token) + first_head.q_column + column,
                                a.qkv.stride, here, d);
      copy_tile<queries, warps>(block, gradients_at(step),
                                a.d_out.row(token) + first_head.out_column + column, a.d_out.stride, here, d);
      const std::size_t saved =
          (batch * a.shape.heads() + first_head.head + next.head) * a.shape.sequence + next.row;
      each_thread([&](unsigned thread) {
        const std::size_t i = block.warp() * warp_threads + thread;
        if (i < queries) {
          // Zeros beyond the end give a probability of 1, times the zeros of dO and dots.
          const std::size_t at = i < here ? saved + i : saved;
          block.template copy<4>(shift_at(step) + i, a.log_sum_exp + at, i < here);
          block.template copy<4>(shift_at(step) + queries + i, dots + at, i < here);
        }
      });
      next.advance(end_row, first_row);
    };
    copy_tile<rows, warps>(block, keys, a.key_values.key(key_token, kv_head), key_stride, count, d);
    copy_tile<rows, warps>(block, values, a.key_values.key(key_token, kv_head) + d, key_stride, count, d);
    if (steps != 0)
      start(0);
    block.end_copies();

    const std::size_t warp_first = block.warp() * std::size_t{16};
    Registers<std::uint32_t, 2> sees;  // the first query that sees it, by row
    Registers<std::uint32_t, 2> until; // one more than the last
    each_thread([&](unsigned thread) {
      for_rows<1>(thread, [&](std::size_t row, int r) {
        const std::size_t key = warp_first + row;
        sees(thread, r) =
            key < count ? static_cast<std::uint32_t>(own.first_query(first + key)) : ~std::uint32_t{0};
        until(thread, r) = key < count ? static_cast<std::uint32_t>(own.end_query(first + key)) : 0u;
      });
    });
    const bool idle = warp_first >= count;
    const std::size_t last = smaller_of(warp_first + 16, count) - 1;
    const auto seen_from = idle ? end_row : static_cast<std::uint32_t>(own.first_query(first + warp_first));
    const auto all_seen_from = idle ? 0u : static_cast<std::uint32_t>(own.first_query(first + last));
    const auto seen_until = idle ? 0u : static_cast<std::uint32_t>(own.end_query(first + last));
    const auto all_seen_until = idle ? 0u : static_cast<std::uint32_t>(own.end_query(first + warp_first));
    QueryRows now{0, first_row};
    Registers<std::uint32_t, dim / 4> left;
    Registers<std::uint32_t, dim / 4> left_values;
    Registers<float, dim / 2> d_keys;
    Registers<float, dim / 2> d_values;
    set_registers(d_keys, 0.0f);
    set_registers(d_values, 0.0f);
    for (std::uint32_t step = 0; step < steps; ++step) {
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
        const std::uint32_t row = now.row + static_cast<std::uint32_t>(p);
        if (row + part <= seen_from || (!Form::one_sided && row >= seen_until))
          continue;
        Registers<float, part / 2> scores;
        Registers<float, part / 2> slopes;
        multiply_rows<Element, dim, 1, part / 8>(scores, left, queries_at(step), p);
        multiply_rows<Element, dim, 1, part / 8>(slopes, left_values, gradients_at(step), p);
        if (row < all_seen_from || (!Form::one_sided && row + part > all_seen_until))
          hide_scores<part / 8>(scores, [&](unsigned thread, int key, unsigned column) {
            const std::uint32_t query = row + column;
            return query < sees(thread, key) || (!Form::one_sided && query >= until(thread, key));
          });
        score_gradients(scores, slopes, shift_at(step) + p);
        add_weighted_rows<Element, dim, 1, part / 8>(d_values, scores, gradients_at(step), p);
        add_weighted_rows<Element, dim, 1, part / 8>(d_keys, slopes, queries_at(step), p);
      }
      block.barrier(); // before the next copy but one takes its place
      now.advance(end_row, first_row);
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
          if (column < d)
            store_pair(to + d + column, d_values(thread, at), d_values(thread, at + 1), 0);
        }
        const auto pair = [&](int n) {
          return ThreadGroup<float, 2>{{d_keys(thread, n * 4 + r * 2), d_keys(thread, n * 4 + r * 2 + 1)}};
        };
        store_gradient<dim>(to, thread, d, pair, a.scale, 0, a.undone, first + warp_first + row);
      });
    });
  }

private:
  /// The places of a step's query rows: one head of the group after the other.
  struct QueryRows {
    std::uint32_t head;
    std::uint32_t row;
    SHARDWRIGHT_FUNCTION void advance(std::uint32_t end, std::uint32_t first) {
      row += queries;
      if (row < end)
        return;
      row = first;
      ++head;
    }
  };
  /// Neighbours in shared memory.
  struct alignas(8) FloatPair {
    float v[2];
  };

  /// Scores become probabilities P, and gradients of probabilities P (dP - dots): rows are keys, columns
  /// queries, whose log_sum_exp and dots are in shared memory.
  SHARDWRIGHT_FUNCTION void score_gradients(Registers<float, part / 2>& scores,
                                            Registers<float, part / 2>& slopes, const float* shift) const {
    const float factor = a.scale * tiles_log2e;
    each_thread([&](unsigned thread) {
      SHARDWRIGHT_UNROLL for (int pair = 0; pair < part / 4; ++pair) {
        const unsigned column = 8 * static_cast<unsigned>(pair / 2) + thread % 4 * 2;
        const auto shifts = *reinterpret_cast<const FloatPair*>(shift + column);
        const auto row_dots = *reinterpret_cast<const FloatPair*>(shift + queries + column);
        SHARDWRIGHT_UNROLL for (int k = 0; k < 2; ++k) {
          const int i = 2 * pair + k;
          const float weight = fast_exp2(scores(thread, i) * factor - shifts.v[k] * tiles_log2e);
          scores(thread, i) = weight;
          slopes(thread, i) = weight * (slopes(thread, i) - row_dots.v[k]);
        }
      }
    });
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
