// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of RMSNorm and LayerNorm, forward and backward: norms of rows, optionally fused
/// with the residual addition.

#include <shardwright/tensor/kernels/column_sums.hpp>
#include <shardwright/tensor/kernels/device/block.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#if defined(KOKKOS_ENABLE_CUDA)
#include <shardwright/tensor/kernels/device/cuda_block.hpp>
#endif

#include <cmath>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// y = (x - mean) inverse gain + bias with inverse = 1 / sqrt(mean of (x - mean)^2 + epsilon); a norm that is
/// not centred has a mean of 0, one that is not biased a bias of 0.
template <class Element, bool centred, bool biased> struct NormForward {
  using Number = AccumulationElement<Element>;
  MatrixSpan<const Element> x;
  MatrixSpan<const Element> branch{}; // added first if its data is not null
  const Element* gain;
  const Element* bias = nullptr;
  Number epsilon;
  MatrixSpan<Element> sum{};
  MatrixSpan<Element> y;
  Number* mean = nullptr;
  Number* inverse;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const Element* in = x.row(i);
    Element* out = y.row(i);
    const Element* gains = gain;
    const Element* biases = biased ? bias : gain;
    if (branch.data == nullptr) {
      const Statistics row = statistics_of(
          i, [in](auto chunk, std::size_t c) { return chunk.load(in + c); }, in);
      for_chunks<Number>(
          0, x.columns,
          [=](auto chunk, std::size_t c) {
            chunk.store(out + c, normed(chunk, chunk.load(in + c), row, gains + c, biases + c));
          },
          in, out, gains, biases);
    } else {
      const Element* added = branch.row(i);
      Element* total = sum.row(i);
      // The backward pass reads the sum as stored.
      const Statistics row = statistics_of(
          i,
          [in, added](auto chunk, std::size_t c) {
            return stored_lanes<Element, lane_count<Number>>(chunk.load(in + c) + chunk.load(added + c));
          },
          in, added);
      for_chunks<Number>(
          0, x.columns,
          [=](auto chunk, std::size_t c) {
            const Lanes<Number> exact = chunk.load(in + c) + chunk.load(added + c);
            const Lanes<Number> value = stored_lanes<Element, lane_count<Number>>(exact);
            const Lanes<Number> result = normed(chunk, value, row, gains + c, biases + c);
            chunk.store(total + c, exact);
            chunk.store(out + c, result);
          },
          in, added, total, out, gains, biases);
    }
  }

private:
  struct Statistics {
    Number mean;
    Number inverse;
  };

  template <class Chunk>
  SHARDWRIGHT_FUNCTION static Lanes<Number> normed(const Chunk& chunk, const Lanes<Number>& value,
                                                   const Statistics& row, const Element* gain,
                                                   const Element* bias) {
    Lanes<Number> out = centred ? (value - row.mean) * row.inverse * chunk.load(gain)
                                : value * row.inverse * chunk.load(gain);
    if constexpr (biased)
      out += chunk.load(bias);
    return out;
  }

  /// The statistics of row i, recorded for the backward pass. Nothing else is stored while a row is read, so
  /// that many loads are in flight on a device; later reads hit the cache.
  template <class Value, class... Memory>
  SHARDWRIGHT_FUNCTION Statistics statistics_of(std::size_t i, const Value& value,
                                                const Memory*... memory) const {
    Number average(0);
    if constexpr (centred) {
      Lanes<Number> total{};
      for_chunks<Number, 3>(
          0, x.columns, [&total, &value](auto chunk, std::size_t c) { total += value(chunk, c); }, memory...);
      average = sum_of<Number>(total) / static_cast<Number>(x.columns);
    }
    Lanes<Number> squares{};
    for_chunks<Number, 3>(
        0, x.columns,
        [&squares, &value, average](auto chunk, std::size_t c) {
          if constexpr (centred) {
            const Lanes<Number> lanes = chunk.keep(value(chunk, c) - average, Number(0));
            squares += lanes * lanes;
          } else {
            const Lanes<Number> lanes = value(chunk, c);
            squares += lanes * lanes;
          }
        },
        memory...);
    const Number variance = sum_of<Number>(squares) / static_cast<Number>(x.columns);
    const Number scale = Number(1) / std::sqrt(variance + epsilon);
    if (first_lane()) {
      inverse[i] = scale;
      if constexpr (centred)
        mean[i] = average;
    }
    return {average, scale};
  }
};

/// dx = s (g dy - mean(g dy) - n mean(g dy n)) with s = inverse and n = s (x - mean), the first mean of a
/// centred norm only; d_gain = sum over rows of dy n, d_bias = sum over rows of dy. One call per row block.
template <class Element, bool centred, bool input, bool gains, bool biases> struct NormBackward {
  static_assert(gains || !biases);
  using Number = AccumulationElement<Element>;
  static constexpr std::size_t sums_of_rows = gains + biases;
  static constexpr bool gives_input = input;
  MatrixSpan<const Element> x;
  const Element* gain = nullptr;
  const Number* mean = nullptr;
  const Number* inverse;
  MatrixSpan<const Element> dy;
  MatrixSpan<const Element> d_residual{}; // added to dx if its data is not null
  MatrixSpan<Element> dx{};
  Number* partial = nullptr; // [blocks, columns] of the gain, then of the bias
  std::size_t grain = 0;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    const std::size_t end = block_end(block, grain, x.rows);
    Number* sums = gains ? partial + block * x.columns : nullptr;
    Number* bias_sums = biases ? sums + blocks_of(x.rows, grain) * x.columns : nullptr;
    for (std::size_t i = block * grain; i < end; ++i)
      row(i, i == block * grain, sums, bias_sums);
  }

  using WithoutSums = NormBackward<Element, centred, input, false, false>;
  /// Only the gradient of the input, one row per call.
  [[nodiscard]] WithoutSums without_sums() const {
    return {.x = x,
            .gain = gain,
            .mean = mean,
            .inverse = inverse,
            .dy = dy,
            .d_residual = d_residual,
            .dx = dx,
            .grain = 1};
  }

  /// Adds columns [begin, end) of a row to the sums over rows; `first` overwrites them.
  SHARDWRIGHT_FUNCTION void add_sums(std::size_t i, bool first, std::size_t begin, std::size_t end,
                                     Number* sums, Number* bias_sums) const {
    const Element* in = x.row(i);
    const Element* from = dy.row(i);
    const Number s = inverse[i];
    const Number average = centred ? mean[i] : Number(0);
    for_chunks<Number>(
        begin, end,
        [=](auto chunk, std::size_t c) {
          Lanes<Number> value = chunk.load(in + c);
          if constexpr (centred)
            value = value - average;
          const Lanes<Number> slope = chunk.load(from + c);
          chunk.store(sums + c, first ? slope * value * s : chunk.load(sums + c) + slope * value * s);
          if constexpr (biases)
            chunk.store(bias_sums + c, first ? slope : chunk.load(bias_sums + c) + slope);
        },
        in, from, sums);
  }

  /// One row; `first` overwrites the sums over rows.
  SHARDWRIGHT_FUNCTION void row(std::size_t i, bool first, Number* sums, Number* bias_sums) const {
    if (input && d_residual.data != nullptr)
      row_with<true>(i, first, sums, bias_sums);
    else
      row_with<false>(i, first, sums, bias_sums);
  }

private:
  template <bool with_residual>
  SHARDWRIGHT_FUNCTION void row_with(std::size_t i, bool first, Number* sums, Number* bias_sums) const {
    const Element* in = x.row(i);
    const Element* from = dy.row(i);
    const Element* residual = with_residual ? d_residual.row(i) : from;
    const Element* g = gain;
    Element* to = dx.row(i);
    const Number s = inverse[i];
    const Number average = centred ? mean[i] : Number(0);
    Number shift(0);
    Number base(0);
    if constexpr (input) {
      Lanes<Number> dots{};
      [[maybe_unused]] Lanes<Number> slopes{};
      for_chunks<Number, 3>(
          0, x.columns,
          [=, &dots, &slopes](auto chunk, std::size_t c) {
            if constexpr (centred) {
              const Lanes<Number> slope = chunk.load(from + c) * chunk.load(g + c);
              slopes += slope;
              dots += slope * (chunk.load(in + c) - average);
            } else {
              dots += chunk.load(from + c) * chunk.load(in + c) * chunk.load(g + c);
            }
          },
          from, in, g);
      shift = sum_of<Number>(dots) / static_cast<Number>(x.columns) * s * s * s;
      if constexpr (centred)
        base = sum_of<Number>(slopes) / static_cast<Number>(x.columns) * s;
    }
    for_chunks<Number>(
        0, x.columns,
        [=](auto chunk, std::size_t c) {
          Lanes<Number> value = chunk.load(in + c);
          if constexpr (centred)
            value = value - average;
          const Lanes<Number> slope = chunk.load(from + c);
          [[maybe_unused]] Lanes<Number> result{};
          if constexpr (input) {
            result = slope * chunk.load(g + c) * s - value * shift;
            if constexpr (centred)
              result = result - base;
          }
          if constexpr (with_residual)
            result = chunk.load(residual + c) + result;
          if constexpr (gains)
            chunk.store(sums + c, first ? slope * value * s : chunk.load(sums + c) + slope * value * s);
          if constexpr (biases)
            chunk.store(bias_sums + c, first ? slope : chunk.load(bias_sums + c) + slope);
          if constexpr (input)
            chunk.store(to + c, result);
        },
        in, from, g, residual, to, sums, bias_sums);
  }
};

/// The gradient with sums over rows, one row block per block: its warps share the rows and keep their sums in
/// shared memory.
template <class Norm, unsigned count_of_warps = 8> struct NormBackwardOfBlocks {
  static constexpr unsigned warps = count_of_warps;
  static constexpr unsigned blocks_at_once = 4;
  using Number = typename Norm::Number;
  Norm norm;

  [[nodiscard]] static constexpr std::size_t shared_bytes(std::size_t columns) {
    return warps * Norm::sums_of_rows * columns * sizeof(Number);
  }

  template <class Block> SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    const std::size_t columns = norm.x.columns;
    constexpr std::size_t kinds = Norm::sums_of_rows;
    Number* all = reinterpret_cast<Number*>(block.shared());
    Number* sums = all + block.warp() * kinds * columns;
    const std::size_t begin = block.index() * column_sum_rows + block.warp();
    const std::size_t end = block_end(block.index(), column_sum_rows, norm.x.rows);
    for (std::size_t i = begin; i < end; i += warps)
      norm.row(i, i == begin, sums, sums + (kinds - 1) * columns);
    if (begin >= end)
      for_chunks<Number>(0, kinds * columns,
                         [sums](auto chunk, std::size_t c) { chunk.store(sums + c, Lanes<Number>{}); });
    block.barrier();
    const std::size_t next_kind = blocks_of(norm.x.rows, column_sum_rows) * columns;
    for (std::size_t c = block_thread(block); c < kinds * columns; c += warps * lane_threads) {
      Number sum(0);
      for (unsigned w = 0; w < warps; ++w)
        sum += all[w * kinds * columns + c];
      norm.partial[c / columns * next_kind + block.index() * columns + c % columns] = sum;
    }
  }
};

template <class Element, class Matrix> MatrixSpan<const Element> const_span_of(const Matrix& matrix) {
  const auto span = span_of(matrix);
  return {span.data, span.rows, span.columns, span.stride};
}

/// Runs blocks of as many warps as have room for their sums in shared memory; false if there is no room for
/// two.
template <unsigned warps, class Norm, class Execution>
[[nodiscard]] bool run_norm_blocks(const Execution& execution, const Norm& functor) {
  using Blocks = NormBackwardOfBlocks<Norm, warps>;
  const std::size_t shared = Blocks::shared_bytes(functor.x.columns);
  if (shared <= BlockLauncher<Execution>::most_shared_bytes(execution)) {
    BlockLauncher<Execution>::run(execution, blocks_of(functor.x.rows, column_sum_rows), shared,
                                  Blocks{functor});
    return true;
  }
  if constexpr (warps > 2)
    return run_norm_blocks<2>(execution, functor);
  return false;
}

/// Only the sums over rows, of a piece of the columns of one row block: for rows so wide that no block has
/// memory for their sums.
template <class Norm> struct NormSumsOfPieces {
  using Number = typename Norm::Number;
  Norm norm;
  std::size_t grain;
  std::size_t pieces;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t work) const {
    const std::size_t columns = norm.x.columns;
    const std::size_t block = work / pieces;
    const std::size_t piece = work % pieces;
    const std::size_t last = block_end(block, column_sum_rows, norm.x.rows);
    Number* sums = norm.partial + block * columns;
    Number* bias_sums = sums + blocks_of(norm.x.rows, column_sum_rows) * columns;
    for (std::size_t i = block * column_sum_rows; i < last; ++i)
      norm.add_sums(i, i == block * column_sum_rows, piece * grain, block_end(piece, grain, columns), sums,
                    bias_sums);
  }
};

template <class Norm, class Execution>
void run_norm_backward(const char* label, const Execution& execution, Norm functor) {
  constexpr bool sums = Norm::sums_of_rows > 0;
  if constexpr (sums && BlockLauncher<Execution>::available) {
    if (run_norm_blocks<8>(execution, functor))
      return;
    // The sums come first, since dx may be dy.
    const std::size_t grain = lane_grain_of<Execution>(4096);
    const std::size_t pieces = blocks_of(functor.x.columns, grain);
    run_lanes(label, execution, blocks_of(functor.x.rows, column_sum_rows) * pieces,
              NormSumsOfPieces<Norm>{functor, grain, pieces});
    if constexpr (Norm::gives_input) {
      const typename Norm::WithoutSums input = functor.without_sums();
      run_lanes(label, execution, input.x.rows, input);
    }
  } else {
    functor.grain = sums || runs_on_host<Execution> ? column_sum_rows : 1;
    run_lanes(label, execution, blocks_of(functor.x.rows, functor.grain), functor);
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
