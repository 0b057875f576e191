// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Sums over the rows of matrices in fixed order, as gradients of biases and gains need them: blocks
/// of rows first, then the blocks.

#include <shardwright/tensor/kernels/device/block.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#if defined(KOKKOS_ENABLE_CUDA)
#include <shardwright/tensor/kernels/device/cuda_block.hpp>
#endif

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Rows that share one partial sum.
inline constexpr std::size_t column_sum_rows = 64;

/// Adds the partial sums of the row blocks, in order.
template <class Element, class Out = Element> struct SumPartials {
  const Element* partial;
  std::size_t blocks;
  std::size_t columns;
  Out* out;
  bool add;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t, std::size_t begin, std::size_t end) const {
    const SumPartials& self = *this;
    for_chunks<Element>(begin, end, [&self](auto chunk, std::size_t c) {
      Lanes<Element> sum = self.add ? chunk.load(self.out + c) : Lanes<Element>{};
      for (std::size_t b = 0; b < self.blocks; ++b)
        sum += chunk.load(self.partial + b * self.columns + c);
      chunk.store(self.out + c, sum);
    });
  }
};

/// As SumPartials: a block handles as many columns as a warp has threads, and a warp every 16th partial sum.
template <class Element, class Out = Element> struct SumPartialsOfBlocks {
  static constexpr unsigned warps = 16;
  static constexpr unsigned blocks_at_once = 1;
  static constexpr std::size_t width = warp_threads;
  static constexpr std::size_t shared_bytes = warps * width * sizeof(Element);
  SumPartials<Element, Out> all;

  template <class Block> SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    Element* shared = reinterpret_cast<Element*>(block.shared());
    const std::size_t first = block.index() * width;
    const std::size_t end = block_end(block.index(), width, all.columns) - first;
    for (std::size_t c = lane_number(); c < end; c += lane_threads) {
      Element sum(0);
      for (std::size_t b = block.warp(); b < all.blocks; b += warps)
        sum += all.partial[b * all.columns + first + c];
      shared[block.warp() * width + c] = sum;
    }
    block.barrier();
    for (std::size_t c = block_thread(block); c < end; c += warps * lane_threads) {
      Element sum = all.add ? static_cast<Element>(all.out[first + c]) : Element(0);
      for (unsigned w = 0; w < warps; ++w)
        sum += shared[w * width + c];
      all.out[first + c] = static_cast<Out>(sum);
    }
  }
};

/// out (+)= the sum of `blocks` rows of `columns`, which another kernel has written.
template <class Element, class Execution, class Out>
void run_sum_partials(const Execution& execution, const Element* partial, std::size_t blocks,
                      std::size_t columns, Out* out, bool add) {
  moves("sw::sum_blocks", execution, columns * (add ? 2 : 1) * sizeof(Out));
  const SumPartials<Element, Out> functor{partial, blocks, columns, out, add};
  if constexpr (BlockLauncher<Execution>::available) {
    using Blocks = SumPartialsOfBlocks<Element, Out>;
    BlockLauncher<Execution>::run(execution, blocks_of(columns, Blocks::width), Blocks::shared_bytes,
                                  Blocks{functor});
  } else {
    run_pieces("sw::sum_blocks", execution, 1, columns, 1024, functor);
  }
}

/// partial[block, c] = the sum over the block's rows.
template <class Terms> struct PartialColumnSums {
  using Number = typename Terms::Number;
  Terms terms;
  std::size_t rows;
  std::size_t columns;
  Number* partial;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block, std::size_t begin, std::size_t end) const {
    const std::size_t last = block_end(block, column_sum_rows, rows);
    Number* sums = partial + block * columns;
    if (lane_threads == 1 && columns < lane_count<Number>)
      return one_by_one(block * column_sum_rows, last, sums);
    for (std::size_t i = block * column_sum_rows; i < last; ++i) {
      const bool first = i == block * column_sum_rows;
      terms.of_row(i * columns, [&](const auto& value, const auto*... memory) {
        for_chunks<Number>(
            begin, end,
            [&](auto chunk, std::size_t c) {
              const Lanes<Number> lanes = value(chunk, c);
              chunk.store(sums + c, first ? lanes : chunk.load(sums + c) + lanes);
            },
            memory..., sums);
      });
    }
  }

private:
  /// Rows that fill no register.
  SHARDWRIGHT_FUNCTION void one_by_one(std::size_t begin, std::size_t end, Number* sums) const {
    for (std::size_t c = 0; c < columns; ++c) {
      Number sum(0);
      for (std::size_t i = begin; i < end; ++i)
        sum += terms.one(i * columns + c, c);
      sums[c] = sum;
    }
  }
};

} // namespace detail

/// @brief Elements (AccumulationElement) of workspace that a sum over rows needs.
[[nodiscard]] constexpr std::size_t column_sums_workspace(std::size_t rows, std::size_t columns) {
  return blocks_of(rows, detail::column_sum_rows) * columns;
}

/// @brief out[c] (+)= the sum of a row of terms (kernels/terms.hpp), in fixed order and in the
/// AccumulationElement: the gradient of a bias.
/// @param out        [columns]
/// @param workspace  AccumulationElement [column_sums_workspace(rows, columns)]
/// @param add        false overwrites `out`
template <class Execution, class Terms, class Out>
void column_sums(const Execution& execution, const Terms& terms, std::size_t rows, std::size_t columns,
                 Out* out, typename Terms::Number* workspace, bool add) {
  const std::size_t blocks = blocks_of(rows, detail::column_sum_rows);
  moves("sw::column_sums", execution, terms.bytes(rows * columns, columns));
  run_pieces("sw::column_sums", execution, blocks, columns, 1024,
             detail::PartialColumnSums<Terms>{terms, rows, columns, workspace});
  detail::run_sum_partials<typename Terms::Number>(execution, workspace, blocks, columns, out, add);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
