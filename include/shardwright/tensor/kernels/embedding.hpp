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
    using Number = MainElement<Element>;
    for_chunks<Number>(
        0, out.columns,
        [here, from, to](auto chunk, std::size_t i) {
          chunk.store(to + i, here ? chunk.load(from + i) : Lanes<Number>{});
        },
        from, to);
  }
};

/// Calls body(token) for the tokens with an id, in order.
template <class Body>
SHARDWRIGHT_FUNCTION inline void for_tokens_with(const std::int32_t* ids, std::size_t count, std::int32_t id,
                                                 const Body& body) {
#if defined(__CUDA_ARCH__)
  // Four ids per thread at once, because almost all that a warp does is to look at them.
  constexpr std::size_t group = 4;
  for (std::size_t first = 0; first < count; first += warp_threads * group) {
    unsigned found[group];
    unsigned any = 0;
    for (std::size_t g = 0; g < group; ++g) {
      const std::size_t token = first + g * warp_threads + lane_number();
      found[g] = __ballot_sync(0xffffffffu, token < count && ids[token] == id);
      any |= found[g];
    }
    if (any == 0)
      continue;
    for (std::size_t g = 0; g < group; ++g)
      for (unsigned left = found[g]; left != 0; left &= left - 1)
        body(first + g * warp_threads + static_cast<std::size_t>(__ffs(static_cast<int>(left)) - 1));
  }
#else
  for (std::size_t token = 0; token < count; ++token)
    if (ids[token] == id)
      body(token);
#endif
}

/// One row of the table per call, which finds its tokens itself and adds them in order: for devices, whose
/// processors would wait for the long sums of EmbeddingBackward. Each row looks at all ids, one operation
/// where the product with an output table of this size has 6 times the width.
template <class Element, class Main>
struct EmbeddingBackwardRow {
  static constexpr std::size_t chunks = 4;
  using Number = MainElement<Main>;
  const std::int32_t* ids;
  MatrixSpan<const Element> d_out;
  std::int64_t first_id;
  MatrixSpan<Main> d_table;
  bool add;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    constexpr std::size_t width = WholeChunk<Number>::width;
    Main* to = d_table.row(row);
    for (std::size_t begin = 0; begin < d_table.columns; begin += chunks * width) {
      const std::size_t end = block_end(begin / (chunks * width), chunks * width, d_table.columns);
      Lanes<Number> sums[chunks] = {};
      for_tokens_with(
          ids, d_out.rows, static_cast<std::int32_t>(first_id + static_cast<std::int64_t>(row)),
          [&](std::size_t token) {
            const Element* from = d_out.row(token);
            for_few_chunks(
                begin, end,
                [&](auto chunk, std::size_t i, Lanes<Number>& sum) { sum += chunk.load(from + i); }, sums);
          });
      for_few_chunks(
          begin, end,
          [&](auto chunk, std::size_t i, Lanes<Number>& sum) {
            chunk.store(to + i, add ? chunk.load(to + i) + sum : sum);
          },
          sums);
    }
  }

private:
  /// for_chunks over at most `chunks` registers, each with a sum; unrolled, so that the sums are registers.
  template <class Body>
  SHARDWRIGHT_FUNCTION static void for_few_chunks(std::size_t begin, std::size_t end, const Body& body,
                                                  Lanes<Number>* sums) {
    constexpr std::size_t width = WholeChunk<Number>::width;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::size_t k = 0; k < chunks; ++k) {
      const std::size_t first = begin + k * width;
      if (first < end)
        for_chunks<Number>(first, first + width < end ? first + width : end,
                           [&](auto chunk, std::size_t i) { body(chunk, i, sums[k]); });
    }
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
      for_chunks<MainElement<Main>>(
          block * grain, end,
          [from, to](auto chunk, std::size_t i) {
            chunk.store(to + i, chunk.load(to + i) + chunk.load(from + i));
          },
          from, to);
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
  detail::run_lanes(
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
  const auto rows = detail::span_of(d_out);
  if constexpr (!detail::runs_on_host<Execution>) {
    detail::run_lanes(
        "sw::d_embedding", execution, d_table.extent(0),
        detail::EmbeddingBackwardRow<Element, Main>{ids.data(),
                                                    {rows.data, rows.rows, rows.columns, rows.stride},
                                                    first_id,
                                                    detail::span_of(d_table),
                                                    add});
  } else {
    if (!add)
      fill(execution, d_table, Main(0));
    constexpr std::size_t grain = 512;
    detail::run("sw::d_embedding", execution, detail::blocks_of(d_table.extent(1), grain),
                detail::EmbeddingBackward<Element, Main>{ids.data(),
                                                         {rows.data, rows.rows, rows.columns, rows.stride},
                                                         first_id,
                                                         detail::span_of(d_table),
                                                         grain});
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
