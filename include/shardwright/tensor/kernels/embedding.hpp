// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Embedding lookup in a block of the vocabulary, and its gradient.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Row of a vocabulary block that a token id has, or `rows` where it lies outside.
SHARDWRIGHT_FUNCTION inline std::size_t block_row(std::int32_t id, std::int64_t first_id, std::size_t rows) {
  const std::int64_t row = id - first_id;
  return row >= 0 && row < static_cast<std::int64_t>(rows) ? static_cast<std::size_t>(row) : rows;
}

template <class Element>
struct EmbeddingForward {
  const std::int32_t* ids;
  MatrixSpan<const Element> table;
  std::int64_t first_id;
  MatrixSpan<Element> out;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t token) const {
    const std::size_t row = block_row(ids[token], first_id, table.rows);
    const bool here = row < table.rows;
    const Element* from = table.row(here ? row : 0);
    Element* to = out.row(token);
    for (std::size_t i = 0; i < out.columns; ++i)
      to[i] = here ? from[i] : Element(0);
  }
};

/// One block of columns per call, tokens in order: no two calls touch one element, and the order is fixed.
template <class Element, class Main>
struct EmbeddingBackward {
  const std::int32_t* ids;
  MatrixSpan<const Element> d_out;
  std::int64_t first_id;
  MatrixSpan<Main> d_table;
  std::size_t grain;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    const std::size_t end = block_end(block, grain, d_table.columns);
    for (std::size_t token = 0; token < d_out.rows; ++token) {
      const std::size_t row = block_row(ids[token], first_id, d_table.rows);
      if (row == d_table.rows)
        continue;
      const Element* from = d_out.row(token);
      Main* to = d_table.row(row);
      for_chunks<MainElement<Main>>(block * grain, end, [from, to](auto chunk, std::size_t i) {
        chunk.store(to + i, chunk.load(to + i) + chunk.load(from + i));
      });
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
template <class Execution, KernelVector Ids, KernelMatrix Table, KernelMatrix Out>
void embedding_forward(const Execution& execution, const Ids& ids, const Table& table, std::int64_t first_id,
                       const Out& out) {
  using Element = typename Out::value_type;
  static_assert(std::is_same_v<typename Ids::non_const_value_type, std::int32_t>,
                "embedding_forward: token ids must be int32.");
  detail::require(ids.extent(0) == out.extent(0), "embedding_forward",
                  "ids and output must have as many tokens.");
  detail::require(table.extent(1) == out.extent(1), "embedding_forward",
                  "table and output must have one width.");
  const auto rows = detail::span_of(table);
  detail::run(
      "sw::embedding", execution, out.extent(0),
      detail::EmbeddingForward<Element>{
          ids.data(), {rows.data, rows.rows, rows.columns, rows.stride}, first_id, detail::span_of(out)});
}

/// @brief d_table[ids[t] - first_id] += d_out[t] for the ids of the block, tokens in order.
/// @param ids      int32 [tokens]
/// @param d_out    [tokens, width]; may be narrower than the sums
/// @param d_table  contiguous [block of the vocabulary, width]
/// @param add      false sets d_table to zero first
template <class Execution, KernelVector Ids, KernelMatrix DOut, KernelMatrix DTable>
void embedding_backward(const Execution& execution, const Ids& ids, const DOut& d_out, std::int64_t first_id,
                        const DTable& d_table, bool add = false) {
  using Main = typename DTable::value_type;
  using Element = typename DOut::non_const_value_type;
  static_assert(std::is_same_v<typename Ids::non_const_value_type, std::int32_t>,
                "embedding_backward: token ids must be int32.");
  detail::require(ids.extent(0) == d_out.extent(0), "embedding_backward",
                  "ids and gradient must have as many tokens.");
  detail::require(d_table.extent(1) == d_out.extent(1), "embedding_backward",
                  "table and output gradients must have one width.");
  if (!add)
    fill(execution, d_table, Main(0));
  const auto rows = detail::span_of(d_out);
  const std::size_t grain = detail::grain_of<Execution>(512);
  detail::run("sw::d_embedding", execution, detail::blocks_of(d_table.extent(1), grain),
              detail::EmbeddingBackward<Element, Main>{ids.data(),
                                                       {rows.data, rows.rows, rows.columns, rows.stride},
                                                       first_id,
                                                       detail::span_of(d_table),
                                                       grain});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
