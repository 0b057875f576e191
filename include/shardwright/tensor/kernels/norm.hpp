// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Norms of rows, RMSNorm and LayerNorm, optionally fused with the residual addition, forward and
/// backward.

#include <shardwright/tensor/kernels/column_sums.hpp>
#include <shardwright/tensor/kernels/device/block.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#if defined(KOKKOS_ENABLE_CUDA)
#include <shardwright/tensor/kernels/device/cuda_block.hpp>
#endif

#include <cmath>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief The arguments of a norm of rows and of its gradients: y = (x - mean) inverse gain + bias with
/// inverse = 1 / sqrt(mean of (x - mean)^2 + epsilon).
///
/// A LayerNorm is centred (Ba et al., arXiv 1607.06450, equation 4, biased variance), an RMSNorm has mean 0
/// (Zhang and Sennrich, arXiv 1910.07467, equation 4). Matrices are [rows, width]; unused ones may be empty.
template <class Element> struct Norm {
  using Number = AccumulationElement<Element>;
  MatrixSpan<const Element> x;        ///< Backward the sum, if there was one.
  MatrixSpan<const Element> branch{}; ///< Added to x first, if it is not empty.
  VectorSpan<const Element> gain;     ///< [width]
  VectorSpan<const Element> bias{};   ///< [width], or empty.
  double epsilon = 0;
  MatrixSpan<Element> sum{};    ///< x + branch; may be one of them.
  MatrixSpan<Element> y{};      ///< May be x.
  VectorSpan<Number> mean{};    ///< [rows] of a centred norm, written forward and read backward.
  VectorSpan<Number> inverse{}; ///< [rows], written forward and read backward.
  MatrixSpan<const Element> dy{};
  MatrixSpan<const Element> d_residual{}; ///< Added to dx, if it is not empty.
  MatrixSpan<Element> dx{};               ///< May be dy or d_residual.
  VectorSpan<Number> d_gain{};            ///< [width]
  VectorSpan<Number> d_bias{};            ///< [width], or empty.
  bool add_gain = false;                  ///< False overwrites d_gain.
  bool add_bias = false;                  ///< False overwrites d_bias.
  VectorSpan<Number> workspace{};         ///< [norm_workspace()], of the backward pass.
};

/// @brief Elements (AccumulationElement) of workspace that the gradients of the gain and, if any, the bias
/// need.
[[nodiscard]] constexpr std::size_t norm_workspace(std::size_t rows, std::size_t width, bool biased) {
  return (biased ? 2 : 1) * column_sums_workspace(rows, width);
}

namespace detail {

/// One row per call.
template <class Element, bool centred, bool biased> struct NormForward {
  using Number = AccumulationElement<Element>;
  Norm<Element> norm;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const Element* in = norm.x.row(i);
    Element* out = norm.y.row(i);
    const Element* gains = norm.gain.data;
    const Element* biases = biased ? norm.bias.data : gains;
    if (norm.branch.data == nullptr) {
      const Statistics row = statistics_of(
          i, [in](auto chunk, std::size_t c) { return chunk.load(in + c); }, in);
      for_chunks<Number>(
          0, norm.x.columns,
          [=](auto chunk, std::size_t c) {
            chunk.store(out + c, normed(chunk, chunk.load(in + c), row, gains + c, biases + c));
          },
          in, out, gains, biases);
    } else {
      const Element* added = norm.branch.row(i);
      Element* total = norm.sum.row(i);
      // The backward pass reads the sum as stored.
      const Statistics row = statistics_of(
          i,
          [in, added](auto chunk, std::size_t c) {
            return stored_lanes<Element, lane_count<Number>>(chunk.load(in + c) + chunk.load(added + c));
          },
          in, added);
      for_chunks<Number>(
          0, norm.x.columns,
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
    const std::size_t columns = norm.x.columns;
    Number average(0);
    if constexpr (centred) {
      Lanes<Number> total{};
      for_chunks<Number, 3>(
          0, columns, [&total, &value](auto chunk, std::size_t c) { total += value(chunk, c); }, memory...);
      average = sum_of<Number>(total) / static_cast<Number>(columns);
    }
    Lanes<Number> squares{};
    for_chunks<Number, 3>(
        0, columns,
        [=, &squares, &value](auto chunk, std::size_t c) {
          Lanes<Number> lanes = value(chunk, c);
          if constexpr (centred)
            lanes = chunk.keep(lanes - average, Number(0));
          squares += lanes * lanes;
        },
        memory...);
    const Number variance = sum_of<Number>(squares) / static_cast<Number>(columns);
    const Number scale = Number(1) / std::sqrt(variance + static_cast<Number>(norm.epsilon));
    if (first_lane()) {
      norm.inverse.data[i] = scale;
      if constexpr (centred)
        norm.mean.data[i] = average;
    }
    return {average, scale};
  }
};

/// dx = s (g dy - mean(g dy) - n mean(g dy n)) with s = inverse and n = s (x - mean), the first mean of a
/// centred norm only. With `sums`, also d_gain = sum over rows of dy n and d_bias = sum over rows of dy, as
/// partial sums [blocks, columns] of the gain, then of the bias, in the workspace. One call per row block.
template <class Element, bool centred, bool biased, bool sums = true> struct NormBackward {
  using Number = AccumulationElement<Element>;
  static constexpr bool gives_bias = sums && biased;
  static constexpr std::size_t sums_of_rows = sums + gives_bias;
  Norm<Element> norm;
  std::size_t grain = 1;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    const std::size_t columns = norm.x.columns;
    const std::size_t end = block_end(block, grain, norm.x.rows);
    Number* gain_sums = sums ? norm.workspace.data + block * columns : nullptr;
    Number* bias_sums = gives_bias ? gain_sums + blocks_of(norm.x.rows, grain) * columns : nullptr;
    for (std::size_t i = block * grain; i < end; ++i)
      row(i, i == block * grain, gain_sums, bias_sums);
  }

  /// Adds columns [begin, end) of a row to the sums over rows; `first` overwrites them.
  SHARDWRIGHT_FUNCTION void add_sums(std::size_t i, bool first, std::size_t begin, std::size_t end,
                                     Number* gain_sums, Number* bias_sums) const {
    const Element* in = norm.x.row(i);
    const Element* from = norm.dy.row(i);
    const Number s = norm.inverse.data[i];
    const Number average = centred ? norm.mean.data[i] : Number(0);
    for_chunks<Number>(
        begin, end,
        [=](auto chunk, std::size_t c) {
          const Lanes<Number> value = centred_lanes(chunk.load(in + c), average);
          const Lanes<Number> slope = chunk.load(from + c);
          chunk.store(gain_sums + c,
                      first ? slope * value * s : chunk.load(gain_sums + c) + slope * value * s);
          if constexpr (gives_bias)
            chunk.store(bias_sums + c, first ? slope : chunk.load(bias_sums + c) + slope);
        },
        in, from, gain_sums, gives_bias ? bias_sums : gain_sums);
  }

  /// One row; `first` overwrites the sums over rows.
  SHARDWRIGHT_FUNCTION void row(std::size_t i, bool first, Number* gain_sums, Number* bias_sums) const {
    if (norm.d_residual.data != nullptr)
      row_with<true>(i, first, gain_sums, bias_sums);
    else
      row_with<false>(i, first, gain_sums, bias_sums);
  }

private:
  SHARDWRIGHT_FUNCTION static Lanes<Number> centred_lanes(const Lanes<Number>& value, Number average) {
    if constexpr (centred)
      return value - average;
    else
      return value;
  }

  template <bool with_residual>
  SHARDWRIGHT_FUNCTION void row_with(std::size_t i, bool first, Number* gain_sums, Number* bias_sums) const {
    const std::size_t columns = norm.x.columns;
    const Element* in = norm.x.row(i);
    const Element* from = norm.dy.row(i);
    const Element* residual = with_residual ? norm.d_residual.row(i) : from;
    const Element* g = norm.gain.data;
    Element* to = norm.dx.row(i);
    const Number s = norm.inverse.data[i];
    const Number average = centred ? norm.mean.data[i] : Number(0);
    Lanes<Number> dots{};
    Lanes<Number> slopes{};
    for_chunks<Number, 3>(
        0, columns,
        [=, &dots, &slopes](auto chunk, std::size_t c) {
          static_cast<void>(slopes); // read only if centred
          if constexpr (centred) {
            const Lanes<Number> slope = chunk.load(from + c) * chunk.load(g + c);
            slopes += slope;
            dots += slope * (chunk.load(in + c) - average);
          } else {
            dots += chunk.load(from + c) * chunk.load(in + c) * chunk.load(g + c);
          }
        },
        from, in, g);
    const Number shift = sum_of<Number>(dots) / static_cast<Number>(columns) * s * s * s;
    const Number base = centred ? sum_of<Number>(slopes) / static_cast<Number>(columns) * s : Number(0);
    for_chunks<Number>(
        0, columns,
        [=](auto chunk, std::size_t c) {
          const Lanes<Number> value = centred_lanes(chunk.load(in + c), average);
          const Lanes<Number> slope = chunk.load(from + c);
          Lanes<Number> result = slope * chunk.load(g + c) * s - value * shift;
          if constexpr (centred)
            result = result - base;
          if constexpr (with_residual)
            result = chunk.load(residual + c) + result;
          if constexpr (sums)
            chunk.store(gain_sums + c,
                        first ? slope * value * s : chunk.load(gain_sums + c) + slope * value * s);
          if constexpr (gives_bias)
            chunk.store(bias_sums + c, first ? slope : chunk.load(bias_sums + c) + slope);
          chunk.store(to + c, result);
        },
        in, from, g, residual, to, gain_sums, bias_sums);
  }
};

/// The gradient with sums over rows, one row block per block: its warps share the rows and keep their sums in
/// shared memory.
template <class Rows, unsigned count_of_warps = 8> struct NormBackwardOfBlocks {
  static constexpr unsigned warps = count_of_warps;
  static constexpr unsigned blocks_at_once = 4;
  using Number = typename Rows::Number;
  Rows rows;

  [[nodiscard]] static constexpr std::size_t shared_bytes(std::size_t columns) {
    return warps * Rows::sums_of_rows * columns * sizeof(Number);
  }

  template <class Block> SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    const std::size_t columns = rows.norm.x.columns;
    constexpr std::size_t kinds = Rows::sums_of_rows;
    Number* all = reinterpret_cast<Number*>(block.shared());
    Number* sums = all + block.warp() * kinds * columns;
    const std::size_t begin = block.index() * column_sum_rows + block.warp();
    const std::size_t end = block_end(block.index(), column_sum_rows, rows.norm.x.rows);
    for (std::size_t i = begin; i < end; i += warps)
      rows.row(i, i == begin, sums, sums + (kinds - 1) * columns);
    if (begin >= end)
      for_chunks<Number>(0, kinds * columns,
                         [sums](auto chunk, std::size_t c) { chunk.store(sums + c, Lanes<Number>{}); });
    block.barrier();
    const std::size_t next_kind = blocks_of(rows.norm.x.rows, column_sum_rows) * columns;
    for (std::size_t c = block_thread(block); c < kinds * columns; c += warps * lane_threads) {
      Number sum(0);
      for (unsigned w = 0; w < warps; ++w)
        sum += all[w * kinds * columns + c];
      rows.norm.workspace.data[c / columns * next_kind + block.index() * columns + c % columns] = sum;
    }
  }
};

/// Runs blocks of as many warps as have room for their sums in shared memory; false if two have not.
template <unsigned warps, class Rows, class Execution>
[[nodiscard]] bool run_norm_blocks(const Execution& execution, const Rows& rows) {
  using Blocks = NormBackwardOfBlocks<Rows, warps>;
  const std::size_t shared = Blocks::shared_bytes(rows.norm.x.columns);
  if (shared <= BlockLauncher<Execution>::most_shared_bytes(execution)) {
    BlockLauncher<Execution>::run(execution, blocks_of(rows.norm.x.rows, column_sum_rows), shared,
                                  Blocks{rows});
    return true;
  }
  if constexpr (warps > 2)
    return run_norm_blocks<2>(execution, rows);
  return false;
}

/// Only the sums over rows, of a piece of the columns of one row block: for rows so wide that no block of
/// warps has memory for their sums.
template <class Rows> struct NormSumsOfPieces {
  using Number = typename Rows::Number;
  Rows rows;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block, std::size_t begin, std::size_t end) const {
    const std::size_t columns = rows.norm.x.columns;
    const std::size_t last = block_end(block, column_sum_rows, rows.norm.x.rows);
    Number* gain_sums = rows.norm.workspace.data + block * columns;
    Number* bias_sums = gain_sums + blocks_of(rows.norm.x.rows, column_sum_rows) * columns;
    for (std::size_t i = block * column_sum_rows; i < last; ++i)
      rows.add_sums(i, i == block * column_sum_rows, begin, end, gain_sums, bias_sums);
  }
};

template <bool centred, bool biased, class Execution, class Element>
void run_norm_backward(const char* label, const Execution& execution, const Norm<Element>& norm) {
  using Rows = NormBackward<Element, centred, biased>;
  const std::size_t blocks = blocks_of(norm.x.rows, column_sum_rows);
  const std::size_t columns = norm.x.columns;
  const Rows rows{norm, column_sum_rows};
  const auto sums_first = [&] { // since dx may be dy
    run_pieces(label, execution, blocks, columns, columns, NormSumsOfPieces<Rows>{rows});
    run_lanes(label, execution, norm.x.rows, NormBackward<Element, centred, biased, false>{norm});
  };
  if constexpr (BlockLauncher<Execution>::available) {
    if (!run_norm_blocks<8>(execution, rows))
      sums_first();
  } else if (centred || norm.d_residual.data != nullptr) {
    run_lanes(label, execution, blocks, rows);
  } else { // compilers contract the sums of a loop with other results differently
    sums_first();
  }
  using Number = AccumulationElement<Element>;
  const Number* const sums = norm.workspace.data;
  run_sum_partials<Number>(execution, sums, blocks, columns, norm.d_gain.data, norm.add_gain);
  if constexpr (biased)
    run_sum_partials<Number>(execution, sums + blocks * columns, blocks, columns, norm.d_bias.data,
                             norm.add_bias);
}

template <bool centred, class Element>
void require_norm(const char* operation, const Norm<Element>& norm, std::size_t of_bias, bool others) {
  require(others && norm.gain.size == norm.x.columns && norm.inverse.size == norm.x.rows &&
              (!centred || norm.mean.size == norm.x.rows) && (of_bias == 0 || of_bias == norm.x.columns),
          operation,
          "all matrices must be [rows, width], gain and bias [width], mean and inverse deviation [rows].");
}

} // namespace detail

/// @brief y and the statistics of each row; with a branch also the sum, in one pass over memory.
/// @throws InvalidArgument if the extents do not agree.
template <bool centred, class Execution, class Element>
void norm_forward(const Execution& execution, const Norm<Element>& norm) {
  const auto same = [&norm](const auto& m) { return m.rows == norm.x.rows && m.columns == norm.x.columns; };
  detail::require_norm<centred>(centred ? "layer_norm_forward" : "rms_norm_forward", norm, norm.bias.size,
                                same(norm.y) &&
                                    (norm.branch.data == nullptr || (same(norm.branch) && same(norm.sum))));
  const char* const label = centred ? "sw::layer_norm" : "sw::rms_norm";
  moves(label, execution, norm.x, norm.branch, norm.gain, norm.bias, norm.sum, norm.y, norm.mean,
        norm.inverse);
  if constexpr (centred)
    if (norm.bias.size > 0)
      return run_lanes(label, execution, norm.x.rows, detail::NormForward<Element, true, true>{norm});
  run_lanes(label, execution, norm.x.rows, detail::NormForward<Element, centred, false>{norm});
}

/// @brief The gradients, rows in fixed order: dx = d_residual + that of x, d_gain (+)= that of the gain, and
/// d_bias (+)= that of a bias. One pass over memory, or two of an RMSNorm without d_residual.
///
/// After `sum = residual + branch; y = norm(sum)` and with the gradient `d_residual` that reaches the sum by
/// other paths, dx is the gradient of the sum, and so of both summands.
/// @tparam trained false if gain and bias are frozen: only dx, without d_gain, d_bias and workspace
/// @throws InvalidArgument if the extents do not agree.
template <bool centred, bool trained = true, class Execution, class Element>
void norm_backward(const Execution& execution, const Norm<Element>& norm) {
  const char* const operation = centred ? "layer_norm_backward" : "rms_norm_backward";
  const auto same = [&norm](const auto& m) { return m.rows == norm.x.rows && m.columns == norm.x.columns; };
  const bool biased = centred && norm.d_bias.size > 0;
  detail::require_norm<centred>(
      operation, norm, norm.d_bias.size,
      same(norm.dy) && same(norm.dx) && norm.d_gain.size == (trained ? norm.x.columns : 0) &&
          (trained || norm.d_bias.size == 0) && (norm.d_residual.data == nullptr || same(norm.d_residual)));
  const char* const label = centred ? "sw::d_layer_norm" : "sw::d_rms_norm";
  moves(label, execution, norm.x, norm.gain, norm.mean, norm.inverse, norm.dy, norm.d_residual, norm.dx);
  if constexpr (trained) {
    require(norm.workspace.size >= norm_workspace(norm.x.rows, norm.x.columns, biased), operation,
            "the workspace is too small (see norm_workspace).");
    if constexpr (centred)
      if (biased)
        return detail::run_norm_backward<true, true>(label, execution, norm);
    detail::run_norm_backward<centred, false>(label, execution, norm);
  } else {
    run_lanes(label, execution, norm.x.rows, detail::NormBackward<Element, centred, false, false>{norm});
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
