// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Embedding lookup in a block of the vocabulary, and its gradient.

#include <shardwright/tensor/kernels/device/block.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/id_check.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#if defined(KOKKOS_ENABLE_CUDA)
#include <shardwright/tensor/kernels/device/cuda_block.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Row of a token id in a vocabulary block, or `rows` if it is outside.
SHARDWRIGHT_FUNCTION inline std::size_t block_row(std::int32_t id, std::int64_t first_id, std::size_t rows) {
  const std::int64_t row = id - first_id;
  return row >= 0 && row < static_cast<std::int64_t>(rows) ? static_cast<std::size_t>(row) : rows;
}

template <class Element> struct EmbeddingForward {
  const std::int32_t* ids;
  MatrixSpan<const Element> table;
  std::int64_t first_id;
  MatrixSpan<Element> out;
  IdCheck check;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t token) const {
    check(ids[token], token);
    const std::size_t row = block_row(ids[token], first_id, table.rows);
    const bool here = row < table.rows;
    const Element* from = table.row(here ? row : 0);
    Element* to = out.row(token);
    using Number = AccumulationElement<Element>;
    for_chunks<Number>(
        0, out.columns,
        [here, from, to](auto chunk, std::size_t i) {
          // Ranks add -0 to the row, which changes no number; 0 would change the sign of a -0.
          chunk.store(to + i, here ? chunk.load(from + i) : broadcast<Number>(Number(-0.0)));
        },
        from, to);
  }
};

/// Blocks of warps that find the tokens of their rows themselves, and add them in order: for devices, where
/// EmbeddingBackward would have few warps with long sums. A block handles the rows whose last bits are its
/// number, so that frequent ids, which are neighbours, go to different blocks.
template <class Element, class Main> struct EmbeddingBackwardOfBlocks {
  static constexpr unsigned warps = 8;
  static constexpr unsigned blocks_at_once = 3;
  static constexpr std::size_t rows = 128;                  // of a block, at most
  static constexpr std::uint32_t piece = 16 * warp_threads; // tokens of a warp between two barriers
  static constexpr std::uint32_t capacity = 2 * warps * piece;
  using Number = AccumulationElement<Main>;
  struct Found {
    std::uint32_t token;
    std::uint32_t row; ///< Of the block.
  };
  static constexpr std::size_t shared_bytes = capacity * sizeof(Found) + warps * sizeof(std::uint32_t);
  const std::int32_t* ids;
  MatrixSpan<const Element> d_out;
  std::int64_t first_id;
  MatrixSpan<Main> d_table;
  bool add;
  unsigned block_bits; ///< The binary logarithm of the number of blocks.

  /// Sets the number of blocks that the table needs.
  [[nodiscard]] EmbeddingBackwardOfBlocks fitted() const {
    EmbeddingBackwardOfBlocks out = *this;
    out.block_bits = 0;
    while (d_table.rows > rows << out.block_bits)
      ++out.block_bits;
    return out;
  }
  [[nodiscard]] std::size_t blocks() const { return std::size_t{1} << block_bits; }

  template <class Block> SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    auto* const found = reinterpret_cast<Found*>(block.shared());
    auto* const counts = reinterpret_cast<std::uint32_t*>(found + capacity);
    const auto tokens = static_cast<std::uint32_t>(d_out.rows);
    std::uint32_t token = 0;
    do { // once even without tokens, which still sets the table
      const bool first = token == 0;
      std::uint32_t held = 0;
      for (; token < tokens && held + warps * piece <= capacity; token += warps * piece)
        held += find(block, token, tokens, found + held, counts);
      add_rows(block, found, held, first && !add);
      block.barrier(); // before others are found
    } while (token < tokens);
  }

private:
  /// Collects the tokens of the block's rows among the next ones, in order; returns how many.
  template <class Block>
  SHARDWRIGHT_FUNCTION std::uint32_t find(const Block& block, std::uint32_t begin, std::uint32_t tokens,
                                          Found* to, std::uint32_t* counts) const {
    constexpr auto step = static_cast<std::uint32_t>(lane_threads);
    constexpr std::uint32_t turns = piece / step;
    constexpr std::uint32_t none = ~std::uint32_t{0};
    const std::uint32_t mine = begin + block.warp() * piece + lane_number();
    // Ids have 32 bits, so differences within the table are correct modulo 2^32.
    const auto first = static_cast<std::uint32_t>(first_id);
    const auto table_rows = static_cast<std::uint32_t>(d_table.rows);
    const auto own_bits = static_cast<std::uint32_t>(block.index());
    const std::uint32_t mask = (std::uint32_t{1} << block_bits) - 1;
    std::uint32_t matches[turns];
    std::uint32_t own = 0;
    SHARDWRIGHT_UNROLL for (std::uint32_t k = 0; k < turns; ++k) {
      const std::uint32_t token = mine + k * step;
      // No branch around the load, so that all loads are in flight together.
      const std::uint32_t row = static_cast<std::uint32_t>(ids[token < tokens ? token : 0]) - first;
      const bool here = token < tokens && row < table_rows && (row & mask) == own_bits;
      matches[k] = here ? row >> block_bits : none;
      own += bit_count(threads_where(here));
    }
    if (first_lane())
      counts[block.warp()] = own;
    block.barrier();
    std::uint32_t before = 0;
    std::uint32_t all = 0;
    for (unsigned w = 0; w < warps; ++w) {
      before += w < block.warp() ? counts[w] : 0;
      all += counts[w];
    }
    if (own != 0)
      SHARDWRIGHT_UNROLL for (std::uint32_t k = 0; k < turns; ++k) {
        const bool here = matches[k] != none;
        const std::uint32_t where = threads_where(here);
        if (here)
          to[before + bit_count(where & ((std::uint32_t{1} << lane_number()) - 1))] = {mine + k * step,
                                                                                       matches[k]};
        before += bit_count(where);
      }
    block.barrier(); // all tokens are noted, and the counts are read
    return all;
  }

  /// Adds the tokens found to their rows; a warp has a register of columns of a row at a time.
  template <class Block>
  SHARDWRIGHT_FUNCTION void add_rows(const Block& block, const Found* found, std::uint32_t count,
                                     bool overwrite) const {
    constexpr std::size_t width = WholeChunk<Number>::width;
    constexpr auto step = static_cast<std::uint32_t>(lane_threads);
    const auto parts = static_cast<unsigned>(blocks_of(d_table.columns, width));
    for (unsigned unit = block.warp();; unit += warps) {
      const unsigned own = unit / parts;
      const std::size_t row = (std::size_t{own} << block_bits) + block.index();
      if (row >= d_table.rows)
        break;
      Main* const to = d_table.row(row);
      for_chunks<Number>(
          unit % parts * width, block_end(unit % parts, width, d_table.columns),
          [&](auto chunk, std::size_t c) {
            Lanes<Number> sum{};
            bool met = overwrite;
            if (!overwrite)
              sum = chunk.load(to + c);
            for (std::uint32_t i = 0; i < count; i += step) {
              const std::uint32_t mine = i + lane_number();
              std::uint32_t left = threads_where(mine < count && found[mine].row == own);
              met |= left != 0;
              while (left != 0)
                sum = added(sum, chunk, c, found + i, left);
            }
            if (met)
              chunk.store(to + c, sum);
          },
          d_out.data, d_out.data + d_out.stride, to);
    }
  }

  /// Adds the rows of the next tokens of `left` to the sum and clears their bits; up to four rows are read
  /// together.
  template <class Chunk>
  SHARDWRIGHT_FUNCTION Lanes<Number> added(Lanes<Number> sum, const Chunk& chunk, std::size_t c,
                                           const Found* found, std::uint32_t& left) const {
    constexpr unsigned together = 4;
    const unsigned count = bit_count(left);
    Lanes<Number> values[together];
    SHARDWRIGHT_UNROLL for (unsigned k = 0; k < together; ++k) {
      values[k] = chunk.load(d_out.row(found[lowest_bit(left)].token) + c);
      left = k + 1 < count ? left & (left - 1) : left; // the last one again if there are no more
    }
    SHARDWRIGHT_UNROLL for (unsigned k = 0; k < together; ++k) if (k < count) sum += values[k];
    if (count <= together)
      left = 0;
    return sum;
  }
};

/// A piece of the columns, tokens in order: no two calls touch one element, and the order is fixed.
template <class Element, class Main> struct EmbeddingBackward {
  const std::int32_t* ids;
  MatrixSpan<const Element> d_out;
  std::int64_t first_id;
  MatrixSpan<Main> d_table;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t, std::size_t begin, std::size_t end) const {
    for (std::size_t token = 0; token < d_out.rows; ++token) {
      const std::size_t row = block_row(ids[token], first_id, d_table.rows);
      if (row < d_table.rows)
        add_lanes(d_out.row(token), d_table.row(row), begin, end);
    }
  }
};

} // namespace detail

/// @brief out[t] = table[ids[t] - first_id]; ids outside the block give zero rows.
///
/// With the vocabulary split over ranks, the sum of all ranks' outputs is the full lookup.
/// @param ids    int32 [tokens]
/// @param table  [block of the vocabulary, width], which starts at id `first_id`
/// @param out    [tokens, width]
/// @param check  notes an id beyond the vocabulary
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelVector Ids, KernelMatrix Table, KernelMatrix Out>
void embedding_forward(const Execution& execution, const Ids& ids, const Table& table, std::int64_t first_id,
                       const Out& out, const IdCheck& check = {}) {
  using Element = typename Out::value_type;
  static_assert(std::is_same_v<typename Ids::non_const_value_type, std::int32_t>,
                "embedding_forward: token ids must be int32.");
  require(ids.extent(0) == out.extent(0), "embedding_forward",
          "ids and output must have the same number of tokens.");
  require(table.extent(1) == out.extent(1), "embedding_forward",
          "table and output must have the same width.");
  moves("sw::embedding", execution, ids, out, out); // a row of the table for each one of the result
  run_lanes("sw::embedding", execution, out.extent(0),
            detail::EmbeddingForward<Element>{ids.data(), span_of(table), first_id, span_of(out), check});
}

/// @brief d_table[ids[t] - first_id] += d_out[t] for the ids of the block, tokens in order.
/// @param ids      int32 [tokens]
/// @param d_out    [tokens, width]; may be narrower than the sums
/// @param d_table  contiguous [block of the vocabulary, width]
/// @param add      false sets d_table to zero first
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelVector Ids, KernelMatrix DOut, KernelMatrix DTable>
void embedding_backward(const Execution& execution, const Ids& ids, const DOut& d_out, std::int64_t first_id,
                        const DTable& d_table, bool add = false) {
  using Main = typename DTable::value_type;
  using Element = typename DOut::non_const_value_type;
  static_assert(std::is_same_v<typename Ids::non_const_value_type, std::int32_t>,
                "embedding_backward: token ids must be int32.");
  require(ids.extent(0) == d_out.extent(0), "embedding_backward",
          "ids and gradient must have the same number of tokens.");
  require(d_table.extent(1) == d_out.extent(1), "embedding_backward",
          "table and output gradients must have the same width.");
  const MatrixSpan<const Element> from = span_of(d_out);
  // Without `add`, the zeros of fill() stand for the store.
  moves("sw::d_embedding", execution, ids, d_out, add ? 2 * detail::bytes_of(d_table) : 0);
  if constexpr (detail::BlockLauncher<Execution>::available) {
    using Blocks = detail::EmbeddingBackwardOfBlocks<Element, Main>;
    const Blocks blocks = Blocks{ids.data(), from, first_id, span_of(d_table), add, 0}.fitted();
    if (d_table.size() != 0)
      detail::BlockLauncher<Execution>::run(execution, blocks.blocks(), Blocks::shared_bytes, blocks);
  } else {
    if (!add)
      fill(execution, d_table, Main(0));
    run_pieces("sw::d_embedding", execution, 1, d_table.extent(1), 512,
               detail::EmbeddingBackward<Element, Main>{ids.data(), from, first_id, span_of(d_table)});
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
