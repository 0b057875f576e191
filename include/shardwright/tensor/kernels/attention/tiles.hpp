// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention of 16-bit elements on tensor cores: scores live in registers, never in memory.
///
/// FlashAttention-2 (Dao 2023, arXiv 2307.08691): algorithm 1 here, the gradient in
/// tiles_backward.hpp. A block has a tile of query rows, divided among its warps; tiles of keys and
/// values pass through shared memory, and the next one is loaded while the current one is processed.

#include <shardwright/tensor/kernels/attention/device.hpp>
#include <shardwright/tensor/kernels/attention/shape.hpp>
#include <shardwright/tensor/kernels/attention/work.hpp>
#include <shardwright/tensor/kernels/device/block.hpp>
#include <shardwright/tensor/kernels/device/warp_matrix.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Widest head that the tiled kernels support; narrower ones are padded with zeros in shared memory.
inline constexpr std::size_t widest_tile = 128;

/// Whether heads can be copied in units of 16 bytes, and fit.
[[nodiscard]] constexpr bool has_tiles(const AttentionShape& shape) {
  return shape.head_dim % 8 == 0 && shape.head_dim <= widest_tile && shape.value_width() == shape.head_dim;
}

inline constexpr float tiles_infinity = std::numeric_limits<float>::infinity();
inline constexpr float tiles_log2e = 1.4426950408889634f;

struct Larger {
  SHARDWRIGHT_FUNCTION float operator()(float a, float b) const { return std::fmax(a, b); }
};
struct Plus {
  SHARDWRIGHT_FUNCTION float operator()(float a, float b) const { return a + b; }
};

SHARDWRIGHT_FUNCTION constexpr std::size_t smaller_of(std::size_t a, std::size_t b) { return a < b ? a : b; }

/// Scores: sums(row, column) = sum over dim of left(row) right(column), for `tiles` times 16 rows that a warp
/// has in registers, and the 8 * `columns` rows of a tile of the right factor from `first` on.
template <class Element, int dim, int tiles, int columns, int count>
SHARDWRIGHT_FUNCTION inline void multiply_rows(Registers<float, count>& sums,
                                               Registers<std::uint32_t, tiles * dim / 4>& left,
                                               const SharedTile<Element, dim>& right, int first) {
  set_registers(sums, 0.0f);
  SHARDWRIGHT_UNROLL for (int k = 0; k < dim / 16; ++k) {
    SHARDWRIGHT_UNROLL for (int n = 0; n < columns; n += 2) {
      Registers<std::uint32_t, 4> b;
      right.load_right_of_rows(RegistersFrom{b, 0}, first + 8 * n, 16 * k);
      SHARDWRIGHT_UNROLL for (int m = 0; m < tiles; ++m) {
        const RegistersFrom a{left, (m * dim / 16 + k) * 4};
        add_product<Element>(RegistersFrom{sums, (m * columns + n) * 4}, a, RegistersFrom{b, 0});
        add_product<Element>(RegistersFrom{sums, (m * columns + n + 1) * 4}, a, RegistersFrom{b, 2});
      }
    }
  }
}

/// sums += weights times the rows of a tile from `first` on: `weights` are [16 tiles, 8 columns] in the
/// registers of a product's result, which are those of a left factor once they are rounded and paired.
template <class Element, int dim, int tiles, int columns, int count>
SHARDWRIGHT_FUNCTION inline void add_weighted_rows(Registers<float, tiles * dim / 2>& sums,
                                                   const Registers<float, count>& weights,
                                                   const SharedTile<Element, dim>& right, int first) {
  SHARDWRIGHT_UNROLL for (int k = 0; k < columns / 2; ++k) {
    Registers<std::uint32_t, 4 * tiles> a;
    each_thread([&](unsigned thread) {
      SHARDWRIGHT_UNROLL for (int m = 0; m < tiles; ++m) {
        SHARDWRIGHT_UNROLL for (int i = 0; i < 4; ++i) {
          const int from = (m * columns + 2 * k + i / 2) * 4 + i % 2 * 2;
          a(thread, 4 * m + i) = packed_pair<Element>(weights(thread, from), weights(thread, from + 1));
        }
      }
    });
    SHARDWRIGHT_UNROLL for (int n = 0; n < dim / 8; n += 2) {
      Registers<std::uint32_t, 4> b;
      right.load_right(RegistersFrom{b, 0}, first + 16 * k, 8 * n);
      SHARDWRIGHT_UNROLL for (int m = 0; m < tiles; ++m) {
        add_product<Element>(RegistersFrom{sums, (m * dim / 8 + n) * 4}, RegistersFrom{a, 4 * m},
                             RegistersFrom{b, 0});
        add_product<Element>(RegistersFrom{sums, (m * dim / 8 + n + 1) * 4}, RegistersFrom{a, 4 * m},
                             RegistersFrom{b, 2});
      }
    }
  }
}

/// A warp's rows of a tile as left factors.
template <class Element, int dim, int tiles>
SHARDWRIGHT_FUNCTION inline void load_rows(Registers<std::uint32_t, tiles * dim / 4>& left,
                                           const SharedTile<Element, dim>& tile, int first) {
  SHARDWRIGHT_UNROLL for (int m = 0; m < tiles; ++m) {
    SHARDWRIGHT_UNROLL for (int k = 0; k < dim / 16; ++k)
        tile.load_left(RegistersFrom{left, (m * dim / 16 + k) * 4}, first + 16 * m, 16 * k);
  }
}

/// Scores of keys that queries do not see become -infinity: those for which hidden(thread, number of the row,
/// column) holds, with rows as for_rows counts them.
template <int columns, int count, class Hidden>
SHARDWRIGHT_FUNCTION inline void hide_scores(Registers<float, count>& scores, const Hidden& hidden) {
  each_thread([&](unsigned thread) {
    SHARDWRIGHT_UNROLL for (int i = 0; i < count; ++i) {
      const int row = i / (4 * columns) * 2 + i % 4 / 2;
      const int column = i / 4 % columns * 8 + i % 2;
      if (hidden(thread, row, static_cast<unsigned>(column) + thread % 4 * 2))
        scores(thread, i) = -tiles_infinity;
    }
  });
}

/// Calls body(row, half) for the rows of a tile that a thread has parts of: 16 m + thread / 4 and 8 further,
/// counted by 2 m + 0 and 2 m + 1.
template <int tiles, class Body>
SHARDWRIGHT_FUNCTION inline void for_rows(unsigned thread, const Body& body) {
  SHARDWRIGHT_UNROLL for (int r = 0; r < 2 * tiles; ++r)
      body(static_cast<std::size_t>(r) * 8 + thread / 4, r);
}

/// Whether results may be combined with those of other keys: such sums have the AccumulationElement.
template <class Out> inline constexpr bool may_merge = !is_narrow<Out>;

/// Writes two neighbouring numbers to aligned memory, or adds them.
template <class Out>
SHARDWRIGHT_FUNCTION inline void store_pair(Out* to, float first, float second, float keep) {
  using Pair = ThreadGroup<float, 2>;
  Pair pair{{first, second}};
  if (keep != 0) {
    const Pair old = Pair::load_whole(to);
    pair.v[0] += keep * old.v[0];
    pair.v[1] += keep * old.v[1];
  }
  pair.store_whole(to);
}

/// Whether the kernels undo the rotation of queries and keys where they store the gradients: if it turns
/// whole heads of a tile's width. A thread then has both elements of each pair, in columns c and c + head_dim
/// / 2.
[[nodiscard]] constexpr bool tiles_undo(const AttentionShape& shape) {
  return (shape.head_dim == 64 || shape.head_dim == widest_tile) && shape.rotary_width() == shape.head_dim;
}

/// Stores a row of the gradient of queries or keys, of which pair(n) is a thread's part in columns
/// 8 n + thread % 4 * 2 and the next, times `scale`. `turns` and the row's position are those of the
/// rotation.
template <int dim, class Out, class Pair>
SHARDWRIGHT_FUNCTION inline void store_gradient(Out* to, unsigned thread, std::size_t columns,
                                                const Pair& pair, float scale, float keep,
                                                const Rotation<float>& undone, std::size_t row) {
  using Numbers = ThreadGroup<float, 2>;
  const std::size_t own = thread % 4 * 2;
  if (!undone.turns()) {
    SHARDWRIGHT_UNROLL for (int n = 0; n < dim / 8; ++n) {
      const std::size_t column = 8 * static_cast<std::size_t>(n) + own;
      const Numbers numbers = pair(n);
      if (column < columns)
        store_pair(to + column, numbers.v[0] * scale, numbers.v[1] * scale, keep);
    }
    return;
  }
  const std::size_t position = undone.positions.position(row);
  SHARDWRIGHT_UNROLL for (int n = 0; n < dim / 16; ++n) {
    const std::size_t column = 8 * static_cast<std::size_t>(n) + own;
    const Numbers low = pair(n), high = pair(n + dim / 16);
    const Numbers c = Numbers::load_whole(undone.cosines.row(position) + column);
    const Numbers s = Numbers::load_whole(undone.sines.row(position) + column);
    Numbers turned_low;
    Numbers turned_high;
    SHARDWRIGHT_UNROLL for (int i = 0; i < 2; ++i) {
      turned_low.v[i] = (low.v[i] * c.v[i] + high.v[i] * s.v[i]) * scale;
      turned_high.v[i] = (high.v[i] * c.v[i] - low.v[i] * s.v[i]) * scale;
    }
    store_pair(to + column, turned_low.v[0], turned_low.v[1], 0);
    store_pair(to + dim / 2 + column, turned_high.v[0], turned_high.v[1], 0);
  }
}

/// The query rows of one head in a block, and the keys that they see, from the first one on.
template <class Form> struct QueryTile {
  AttentionHead head;
  Form block;            ///< Of the sequence.
  std::size_t first;     ///< Row in the sequence.
  std::size_t count;     ///< Rows.
  std::size_t first_key; ///< That a row sees.
  std::size_t needed;    ///< Keys.
  std::size_t token;     ///< Of the first row.
  std::size_t key_token; ///< Of the first key.

  /// Under a causal mask the longest work comes first, so that no processor starts it last.
  SHARDWRIGHT_FUNCTION QueryTile(const AttentionShape& shape, const Form& of_all, std::size_t index,
                                 std::size_t rows)
      : head(shape, index / tiles(shape, rows)), block(of_all.of(head.batch)),
        first((tiles(shape, rows) - 1 - index % tiles(shape, rows)) * rows),
        count(smaller_of(rows, shape.sequence - first)), first_key(block.first_key(first)),
        needed(keys_of(count - 1).end), token(head.batch * shape.sequence + first),
        key_token(head.batch * block.keys.rows + first_key) {}

  /// The keys that a row of the tile sees, counted from first_key. Both ends ascend with the row.
  [[nodiscard]] SHARDWRIGHT_FUNCTION RowRange keys_of(std::size_t row) const {
    const std::size_t begin = block.first_key(first + row), end = block.end_key(first + row);
    return {begin > first_key ? begin - first_key : 0, end > first_key ? end - first_key : 0};
  }

private:
  SHARDWRIGHT_FUNCTION static std::size_t tiles(const AttentionShape& shape, std::size_t rows) {
    return blocks_of(shape.sequence, rows);
  }
};

/// One tile of query rows of one head per block; its members and results are those of AttentionForwardRow.
template <class Element, class Out, int dim, class Form = CausalBlock> struct AttentionForwardTiles {
  static constexpr unsigned warps = 4;
  static constexpr unsigned blocks_at_once = 2;
  static constexpr int tiles = dim <= 64 ? 2 : 1; // of 16 rows per warp
  static constexpr int warp_rows = 16 * tiles;
  static constexpr int rows = static_cast<int>(warps) * warp_rows;
  static constexpr int keys = 64;
  static constexpr std::size_t shared_bytes =
      SharedTile<Element, dim>::bytes(rows) + 4 * SharedTile<Element, dim>::bytes(keys);
  AttentionForwardRow<Element, Out, Form> a;

  [[nodiscard]] std::size_t blocks() const {
    return a.shape.batch * a.shape.heads() * blocks_of(a.shape.sequence, rows);
  }

  // One function: the scores and sums of its loop live in registers, which a call would spill.
  template <class Block> SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    const QueryTile<Form> tile(a.shape, a.block, block.index(), rows);
    const AttentionHead& head = tile.head;
    const std::size_t first = tile.first, count = tile.count, needed = tile.needed, token = tile.token,
                      key_token = tile.key_token;
    if (needed == 0)
      return;
    const std::size_t d = a.shape.head_dim;
    const std::size_t key_stride = a.key_values.tokens.stride;
    using Tile = SharedTile<Element, dim>;
    const Tile queries{reinterpret_cast<Element*>(block.shared())};
    const auto keys_at = [&](std::size_t step) {
      return Tile{queries.data + (rows + static_cast<int>(step % 2) * 2 * keys) * Tile::stride};
    };
    const auto values_at = [&](std::size_t step) { return Tile{keys_at(step).data + keys * Tile::stride}; };
    const auto start = [&](std::size_t step) {
      const Element* from = a.key_values.key(key_token + step * keys, head.kv_head);
      const std::size_t here = smaller_of(keys, needed - step * keys);
      copy_tile<keys, warps>(block, keys_at(step), from, key_stride, here, d);
      copy_tile<keys, warps>(block, values_at(step), from + d, key_stride, here, d);
    };
    copy_tile<rows, warps>(block, queries, a.qkv.row(token) + head.q_column, a.qkv.stride, count, d);
    start(0);
    block.end_copies();

    const std::size_t warp_first = block.warp() * static_cast<std::size_t>(warp_rows);
    Registers<std::uint32_t, 2 * tiles> begun; // the first key, by row
    Registers<std::uint32_t, 2 * tiles> seen;  // the end of the keys
    each_thread([&](unsigned thread) {
      for_rows<tiles>(thread, [&](std::size_t row, int r) {
        const std::size_t i = warp_first + row;
        const RowRange own = i < count ? tile.keys_of(i) : RowRange{};
        begun(thread, r) = static_cast<std::uint32_t>(own.begin);
        seen(thread, r) = static_cast<std::uint32_t>(own.end);
      });
    });
    const bool idle = warp_first >= count;
    const RowRange by_first = idle ? RowRange{} : tile.keys_of(warp_first);
    const RowRange by_last = idle ? RowRange{} : tile.keys_of(smaller_of(warp_first + warp_rows, count) - 1);
    Registers<float, 2 * tiles> best; // scores, and sums of exponentials, by row
    Registers<float, 2 * tiles> sums;
    Registers<float, tiles * dim / 2> values;
    Registers<std::uint32_t, tiles * dim / 4> left;
    set_registers(best, -tiles_infinity);
    set_registers(sums, 0.0f);
    set_registers(values, 0.0f);

    const std::size_t steps = blocks_of(needed, keys);
    for (std::size_t step = 0; step < steps; ++step) {
      if (step + 1 < steps)
        start(step + 1);
      block.end_copies();
      block.template wait_for_copies<1>();
      block.barrier();
      if (step == 0)
        load_rows<Element, dim, tiles>(left, queries, static_cast<int>(warp_first));
      if (step * keys < by_last.end && (Form::one_sided || (step + 1) * keys > by_first.begin)) {
        Registers<float, tiles * keys / 2> scores;
        multiply_rows<Element, dim, tiles, keys / 8>(scores, left, keys_at(step), 0);
        if ((step + 1) * keys > by_first.end || (!Form::one_sided && step * keys < by_last.begin)) {
          const auto first_key = static_cast<std::uint32_t>(step) * keys;
          hide_scores<keys / 8>(scores, [&](unsigned thread, int row, unsigned column) {
            const std::uint32_t key = first_key + column;
            return key >= seen(thread, row) || key < begun(thread, row);
          });
        }
        weigh(scores, best, sums, values);
        add_weighted_rows<Element, dim, tiles, keys / 8>(values, scores, values_at(step), 0);
      }
      block.barrier(); // before the next copy but one takes its place
    }
    combine_rows(sums, Plus{});
    finish(head, first, warp_first, seen, best, sums, values);
  }

private:
  using RowNumbers = Registers<float, 2 * tiles>;

  /// Scores become exp(scale (score - best)) with the best score so far; earlier sums are rescaled.
  SHARDWRIGHT_FUNCTION void weigh(Registers<float, tiles * keys / 2>& scores, RowNumbers& best,
                                  RowNumbers& sums, Registers<float, tiles * dim / 2>& values) const {
    const float factor = a.scale * tiles_log2e;
    RowNumbers fresh = best;
    each_thread([&](unsigned thread) {
      SHARDWRIGHT_UNROLL for (int i = 0; i < tiles * keys / 2; ++i) {
        float& row = fresh(thread, i / (keys / 2) * 2 + i % 4 / 2);
        row = Larger{}(scores(thread, i), row);
      }
    });
    combine_rows(fresh, Larger{});
    each_thread([&](unsigned thread) {
      float shift[2 * tiles];
      SHARDWRIGHT_UNROLL for (int r = 0; r < 2 * tiles; ++r) {
        // A row that has seen no key yet has no best score.
        shift[r] = fresh(thread, r) == -tiles_infinity ? 0.0f : fresh(thread, r) * factor;
        const float old = fast_exp2(best(thread, r) * factor - shift[r]);
        best(thread, r) = fresh(thread, r);
        sums(thread, r) *= old;
        SHARDWRIGHT_UNROLL for (int n = 0; n < dim / 8; ++n) {
          values(thread, (r / 2 * dim / 8 + n) * 4 + r % 2 * 2) *= old;
          values(thread, (r / 2 * dim / 8 + n) * 4 + r % 2 * 2 + 1) *= old;
        }
      }
      SHARDWRIGHT_UNROLL for (int i = 0; i < tiles * keys / 2; ++i) {
        const int row = i / (keys / 2) * 2 + i % 4 / 2;
        const float weight = fast_exp2(scores(thread, i) * factor - shift[row]);
        scores(thread, i) = weight;
        sums(thread, row) += weight;
      }
    });
  }

  /// Writes results to memory, combined with those of other keys if `merge` is set (as AttentionForward of
  /// the host does, Liu et al. 2023, arXiv 2310.01889, section 3).
  SHARDWRIGHT_FUNCTION void finish(const AttentionHead& head, std::size_t first, std::size_t warp_first,
                                   const Registers<std::uint32_t, 2 * tiles>& seen, const RowNumbers& best,
                                   const RowNumbers& sums,
                                   const Registers<float, tiles * dim / 2>& values) const {
    float* const saved =
        a.log_sum_exp + (head.batch * a.shape.heads() + head.head) * a.shape.sequence + first + warp_first;
    RowNumbers before;
    set_registers(before, -tiles_infinity);
    const bool merge = may_merge<Out> && a.merge;
    if (merge) {
      each_thread([&](unsigned thread) {
        for_rows<tiles>(thread, [&](std::size_t row, int r) {
          if (seen(thread, r) != 0)
            before(thread, r) = saved[row];
        });
      });
      sync_lanes(); // all four threads of a row have read what one overwrites
    }
    each_thread([&](unsigned thread) {
      for_rows<tiles>(thread, [&](std::size_t row, int r) {
        if (seen(thread, r) == 0)
          return;
        const float old = before(thread, r);
        const float scaled = best(thread, r) * a.scale;
        const float fresh = scaled + std::log(sums(thread, r));
        const float larger = old > fresh ? old : fresh;
        const float joint =
            merge ? larger + std::log(std::exp(old - larger) + std::exp(fresh - larger)) : fresh;
        const float keep = merge ? std::exp(old - joint) : 0.0f;
        const float share = merge ? std::exp(scaled - joint) : 1.0f / sums(thread, r);
        Out* const to = a.out.row(head.batch * a.shape.sequence + first + warp_first + row) + head.out_column;
        SHARDWRIGHT_UNROLL for (int n = 0; n < dim / 8; ++n) {
          const std::size_t column = 8 * static_cast<std::size_t>(n) + thread % 4 * 2;
          const int at = (r / 2 * dim / 8 + n) * 4 + r % 2 * 2;
          if (column < a.shape.head_dim)
            store_pair(to + column, values(thread, at) * share, values(thread, at + 1) * share, keep);
        }
        if (thread % 4 == 0)
          saved[row] = joint;
      });
    });
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
