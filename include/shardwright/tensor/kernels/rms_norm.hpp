// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief RMSNorm and residual addition fused with it, forward and backward.

#include <shardwright/tensor/kernels/block.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#if defined(KOKKOS_ENABLE_CUDA)
#include <shardwright/tensor/kernels/cuda_block.hpp>
#endif

#include <cmath>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Rows that share one partial gain gradient.
inline constexpr std::size_t norm_rows = 64;

template <class Element>
struct RmsNormForward {
  using Number = MainElement<Element>;
  MatrixSpan<const Element> x;
  MatrixSpan<const Element> branch; // added first where its data is not null
  const Element* gain;
  Number epsilon;
  MatrixSpan<Element> sum;
  MatrixSpan<Element> y;
  Number* inverse_rms;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const Element* in = x.row(i);
    Element* out = y.row(i);
    const Element* gains = gain;
    if (branch.data == nullptr) {
      const Number scale = scale_of(
          i, [in](auto chunk, std::size_t c) { return chunk.load(in + c); }, in);
      for_chunks<Number>(
          0, x.columns,
          [=](auto chunk, std::size_t c) {
            chunk.store(out + c, chunk.load(in + c) * scale * chunk.load(gains + c));
          },
          in, out, gains);
    } else {
      const Element* added = branch.row(i);
      Element* total = sum.row(i);
      // The backward pass knows the sum as it is stored.
      const Number scale = scale_of(
          i,
          [in, added](auto chunk, std::size_t c) {
            return stored_lanes<Element, lane_count<Number>>(chunk.load(in + c) + chunk.load(added + c));
          },
          in, added);
      for_chunks<Number>(
          0, x.columns,
          [=](auto chunk, std::size_t c) {
            const Lanes<Number> exact = chunk.load(in + c) + chunk.load(added + c);
            const Lanes<Number> gain_lanes = chunk.load(gains + c);
            chunk.store(total + c, exact);
            chunk.store(out + c, stored_lanes<Element, lane_count<Number>>(exact) * scale * gain_lanes);
          },
          in, added, total, out, gains);
    }
  }

private:
  /// The inverse RMS of row i, noted for the backward pass. Nothing else is stored while a row is read, so
  /// that many loads are under way on a device; the second time, it is near.
  template <class Value, class... Memory>
  SHARDWRIGHT_FUNCTION Number scale_of(std::size_t i, const Value& value, const Memory*... memory) const {
    Lanes<Number> squares{};
    for_chunks<Number, 3>(
        0, x.columns,
        [&squares, &value](auto chunk, std::size_t c) {
          const Lanes<Number> lanes = value(chunk, c);
          squares += lanes * lanes;
        },
        memory...);
    const Number mean = sum_of<Number>(squares) / static_cast<Number>(x.columns);
    const Number scale = Number(1) / std::sqrt(mean + epsilon);
    if (first_lane())
      inverse_rms[i] = scale;
    return scale;
  }
};

/// dx = s (g dy - x s^2 mean(g dy x)) with s = inverse_rms; d_gain = sum over rows of dy x s. One call per
/// row block.
template <class Element, bool input, bool gains>
struct RmsNormBackward {
  using Number = MainElement<Element>;
  MatrixSpan<const Element> x;
  const Element* gain;
  const Number* inverse_rms;
  MatrixSpan<const Element> dy;
  MatrixSpan<const Element> d_residual; // added to dx where its data is not null
  MatrixSpan<Element> dx;
  Number* partial; // [blocks, columns]
  std::size_t grain;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    const std::size_t end = block_end(block, grain, x.rows);
    Number* sums = gains ? partial + block * x.columns : nullptr;
    for (std::size_t i = block * grain; i < end; ++i)
      row(i, i == block * grain, sums);
  }

  /// One row; `first` overwrites the sums of the gain's gradient.
  SHARDWRIGHT_FUNCTION void row(std::size_t i, bool first, Number* sums) const {
    if (input && d_residual.data != nullptr)
      row_with<true>(i, first, sums);
    else
      row_with<false>(i, first, sums);
  }

private:
  template <bool with_residual>
  SHARDWRIGHT_FUNCTION void row_with(std::size_t i, bool first, Number* sums) const {
    const Element* in = x.row(i);
    const Element* from = dy.row(i);
    const Element* residual = with_residual ? d_residual.row(i) : from;
    const Element* g = gain;
    Element* to = dx.row(i);
    const Number s = inverse_rms[i];
    Number shift(0);
    if constexpr (input) {
      Lanes<Number> dots{};
      for_chunks<Number, 3>(
          0, x.columns,
          [=, &dots](auto chunk, std::size_t c) {
            dots += chunk.load(from + c) * chunk.load(in + c) * chunk.load(g + c);
          },
          from, in, g);
      shift = sum_of<Number>(dots) / static_cast<Number>(x.columns) * s * s * s;
    }
    for_chunks<Number>(
        0, x.columns,
        [=](auto chunk, std::size_t c) {
          const Lanes<Number> value = chunk.load(in + c);
          const Lanes<Number> slope = chunk.load(from + c);
          [[maybe_unused]] Lanes<Number> result{};
          if constexpr (input)
            result = slope * chunk.load(g + c) * s - value * shift;
          if constexpr (with_residual)
            result = chunk.load(residual + c) + result;
          if constexpr (gains)
            chunk.store(sums + c, first ? slope * value * s : chunk.load(sums + c) + slope * value * s);
          if constexpr (input)
            chunk.store(to + c, result);
        },
        in, from, g, residual, to, sums);
  }
};

/// The gain's gradient too, of one row block per block: its warps share the rows and keep their sums in
/// shared memory.
template <class Element, bool input>
struct RmsNormBackwardOfBlocks {
  static constexpr unsigned warps = 8;
  static constexpr unsigned blocks_at_once = 4;
  using Number = MainElement<Element>;
  RmsNormBackward<Element, input, true> norm;

  [[nodiscard]] static constexpr std::size_t shared_bytes(std::size_t columns) {
    return warps * columns * sizeof(Number);
  }

  template <class Block>
  SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    const std::size_t columns = norm.x.columns;
    Number* all = reinterpret_cast<Number*>(block.shared());
    Number* sums = all + block.warp() * columns;
    const std::size_t begin = block.index() * norm_rows + block.warp();
    const std::size_t end = block_end(block.index(), norm_rows, norm.x.rows);
    for (std::size_t i = begin; i < end; i += warps)
      norm.row(i, i == begin, sums);
    if (begin >= end)
      for_chunks<Number>(0, columns,
                         [sums](auto chunk, std::size_t c) { chunk.store(sums + c, Lanes<Number>{}); });
    block.barrier();
    for (std::size_t c = block_thread(block); c < columns; c += warps * lane_threads) {
      Number sum(0);
      for (unsigned w = 0; w < warps; ++w)
        sum += all[w * columns + c];
      norm.partial[block.index() * columns + c] = sum;
    }
  }
};

/// Adds the partial sums of the row blocks, in order.
template <class Element>
struct SumPartials {
  const Element* partial;
  std::size_t blocks;
  std::size_t columns;
  Element* out;
  bool add;
  std::size_t grain;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    const SumPartials& self = *this;
    for_chunks<Element>(index * grain, block_end(index, grain, columns), [&self](auto chunk, std::size_t c) {
      Lanes<Element> sum = self.add ? chunk.load(self.out + c) : Lanes<Element>{};
      for (std::size_t b = 0; b < self.blocks; ++b)
        sum += chunk.load(self.partial + b * self.columns + c);
      chunk.store(self.out + c, sum);
    });
  }
};

/// As SumPartials: a block has as many columns as a warp has threads, a warp every 16th partial sum.
template <class Element>
struct SumPartialsOfBlocks {
  static constexpr unsigned warps = 16;
  static constexpr unsigned blocks_at_once = 1;
  static constexpr std::size_t width = warp_threads;
  static constexpr std::size_t shared_bytes = warps * width * sizeof(Element);
  SumPartials<Element> all;

  template <class Block>
  SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
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
      Element sum = all.add ? all.out[first + c] : Element(0);
      for (unsigned w = 0; w < warps; ++w)
        sum += shared[w * width + c];
      all.out[first + c] = sum;
    }
  }
};

template <class Element, class Matrix>
MatrixSpan<const Element> const_span_of(const Matrix& matrix) {
  const auto span = span_of(matrix);
  return {span.data, span.rows, span.columns, span.stride};
}

inline void require_norm(bool holds, const char* operation) {
  require(holds, operation,
          "all matrices must be [rows, width], the gain [width] and the inverse RMS [rows].");
}

template <bool input, bool gains, class Element, class Execution>
void run_norm_backward(const Execution& execution, RmsNormBackward<Element, input, gains> functor) {
  if constexpr (gains && BlockLauncher<Execution>::available) {
    using Blocks = RmsNormBackwardOfBlocks<Element, input>;
    const std::size_t shared = Blocks::shared_bytes(functor.x.columns);
    if (shared <= shared_bytes_everywhere)
      return BlockLauncher<Execution>::run(execution, blocks_of(functor.x.rows, norm_rows), shared,
                                           Blocks{functor});
  }
  functor.grain = gains || runs_on_host<Execution> ? norm_rows : 1;
  run_lanes("sw::d_rms_norm", execution, blocks_of(functor.x.rows, functor.grain), functor);
}

template <class Element, class Execution>
void run_sum_partials(const Execution& execution, const Element* partial, std::size_t blocks,
                      std::size_t columns, Element* out, bool add) {
  const std::size_t grain = lane_grain_of<Execution>(1024);
  const SumPartials<Element> functor{partial, blocks, columns, out, add, grain};
  if constexpr (BlockLauncher<Execution>::available) {
    using Blocks = SumPartialsOfBlocks<Element>;
    BlockLauncher<Execution>::run(execution, blocks_of(columns, Blocks::width), Blocks::shared_bytes,
                                  Blocks{functor});
  } else {
    run_lanes("sw::sum_blocks", execution, blocks_of(columns, grain), functor);
  }
}

} // namespace detail

/// @brief Elements (MainElement) of workspace that the gain gradient needs.
[[nodiscard]] constexpr std::size_t rms_norm_workspace(std::size_t rows, std::size_t width) {
  return detail::blocks_of(rows, detail::norm_rows) * width;
}

/// @brief y = x / rms(x) * gain, with rms(x)^2 = mean(x^2) + epsilon over a row (Zhang and Sennrich 2019).
/// @param x            [rows, width]
/// @param gain         [width]
/// @param y            [rows, width]; may be `x`
/// @param inverse_rms  MainElement [rows], written for the backward pass
template <class Execution, KernelMatrix X, KernelVector Gain, KernelMatrix Y, KernelVector Rms>
void rms_norm_forward(const Execution& execution, const X& x, const Gain& gain, double epsilon, const Y& y,
                      const Rms& inverse_rms) {
  using Element = typename Y::value_type;
  detail::require_norm(x.extent(0) == y.extent(0) && x.extent(1) == y.extent(1) &&
                           gain.extent(0) == x.extent(1) && inverse_rms.extent(0) == x.extent(0),
                       "rms_norm_forward");
  detail::run_lanes("sw::rms_norm", execution, x.extent(0),
                    detail::RmsNormForward<Element>{detail::const_span_of<Element>(x),
                                                    {nullptr, 0, 0, 0},
                                                    gain.data(),
                                                    static_cast<MainElement<Element>>(epsilon),
                                                    {nullptr, 0, 0, 0},
                                                    detail::span_of(y),
                                                    inverse_rms.data()});
}

/// @brief sum = residual + branch and y = rms_norm(sum), in one pass over memory.
/// @param sum  [rows, width]; may be `residual` or `branch`
template <class Execution, KernelMatrix Residual, KernelMatrix Branch, KernelVector Gain, KernelMatrix Sum,
          KernelMatrix Y, KernelVector Rms>
void add_rms_norm_forward(const Execution& execution, const Residual& residual, const Branch& branch,
                          const Gain& gain, double epsilon, const Sum& sum, const Y& y,
                          const Rms& inverse_rms) {
  using Element = typename Y::value_type;
  const auto same = [&residual](const auto& m) {
    return m.extent(0) == residual.extent(0) && m.extent(1) == residual.extent(1);
  };
  detail::require_norm(same(branch) && same(sum) && same(y) && gain.extent(0) == residual.extent(1) &&
                           inverse_rms.extent(0) == residual.extent(0),
                       "add_rms_norm_forward");
  detail::run_lanes("sw::rms_norm", execution, residual.extent(0),
                    detail::RmsNormForward<Element>{
                        detail::const_span_of<Element>(residual), detail::const_span_of<Element>(branch),
                        gain.data(), static_cast<MainElement<Element>>(epsilon), detail::span_of(sum),
                        detail::span_of(y), inverse_rms.data()});
}

/// @brief dx = gradient of rms_norm with respect to x.
/// @param x            [rows, width], the input of the forward pass (the sum, where it was fused)
/// @param inverse_rms  [rows], from the forward pass
/// @param dy           [rows, width]
/// @param dx           [rows, width]; may be `dy`
template <class Execution, KernelMatrix X, KernelVector Gain, KernelVector Rms, KernelMatrix DY,
          KernelMatrix DX>
void rms_norm_backward_input(const Execution& execution, const X& x, const Gain& gain, const Rms& inverse_rms,
                             const DY& dy, const DX& dx) {
  using Element = typename DX::value_type;
  detail::require_norm(x.extent(0) == dy.extent(0) && x.extent(1) == dy.extent(1) &&
                           x.extent(0) == dx.extent(0) && x.extent(1) == dx.extent(1) &&
                           gain.extent(0) == x.extent(1) && inverse_rms.extent(0) == x.extent(0),
                       "rms_norm_backward_input");
  detail::run_norm_backward(execution,
                            detail::RmsNormBackward<Element, true, false>{detail::const_span_of<Element>(x),
                                                                          gain.data(),
                                                                          inverse_rms.data(),
                                                                          detail::const_span_of<Element>(dy),
                                                                          {nullptr, 0, 0, 0},
                                                                          detail::span_of(dx),
                                                                          nullptr,
                                                                          0});
}

/// @brief d_gain (+)= gradient of rms_norm with respect to the gain, rows in fixed order.
/// @param d_gain     MainElement [width]
/// @param workspace  [rms_norm_workspace(rows, width)] elements
/// @param add        false overwrites d_gain
template <class Execution, KernelMatrix X, KernelVector Rms, KernelMatrix DY, KernelVector DGain,
          KernelVector Work>
void rms_norm_backward_gain(const Execution& execution, const X& x, const Rms& inverse_rms, const DY& dy,
                            const DGain& d_gain, const Work& workspace, bool add = false) {
  using Element = typename DY::non_const_value_type;
  detail::require_norm(x.extent(0) == dy.extent(0) && x.extent(1) == dy.extent(1) &&
                           d_gain.extent(0) == x.extent(1) && inverse_rms.extent(0) == x.extent(0),
                       "rms_norm_backward_gain");
  const std::size_t blocks = detail::blocks_of(x.extent(0), detail::norm_rows);
  detail::require(workspace.extent(0) >= blocks * x.extent(1), "rms_norm_backward_gain",
                  "the workspace is too small (see rms_norm_workspace).");
  detail::run_norm_backward(execution,
                            detail::RmsNormBackward<Element, false, true>{detail::const_span_of<Element>(x),
                                                                          nullptr,
                                                                          inverse_rms.data(),
                                                                          detail::const_span_of<Element>(dy),
                                                                          {nullptr, 0, 0, 0},
                                                                          {nullptr, 0, 0, 0},
                                                                          workspace.data(),
                                                                          0});
  detail::run_sum_partials<MainElement<Element>>(execution, workspace.data(), blocks, x.extent(1),
                                                 d_gain.data(), add);
}

/// @brief Both gradients in one pass, with the residual stream's gradient added: dx = d_residual + d rms_norm
/// / dx.
///
/// After `sum = residual + branch; y = rms_norm(sum)` and with the gradient `d_residual` that reaches the sum
/// by other ways, dx is the gradient of the sum, and so of both summands.
/// @param d_residual  [rows, width]; may be `dx`
/// @param dx          [rows, width]; may be `dy`
/// @param workspace   [rms_norm_workspace(rows, width)] elements
/// @param add         false overwrites d_gain
template <class Execution, KernelMatrix X, KernelVector Gain, KernelVector Rms, KernelMatrix DY,
          KernelMatrix DResidual, KernelMatrix DX, KernelVector DGain, KernelVector Work>
void add_rms_norm_backward(const Execution& execution, const X& x, const Gain& gain, const Rms& inverse_rms,
                           const DY& dy, const DResidual& d_residual, const DX& dx, const DGain& d_gain,
                           const Work& workspace, bool add = false) {
  using Element = typename DX::value_type;
  const auto same = [&x](const auto& m) { return m.extent(0) == x.extent(0) && m.extent(1) == x.extent(1); };
  detail::require_norm(same(dy) && same(d_residual) && same(dx) && gain.extent(0) == x.extent(1) &&
                           d_gain.extent(0) == x.extent(1) && inverse_rms.extent(0) == x.extent(0),
                       "add_rms_norm_backward");
  const std::size_t blocks = detail::blocks_of(x.extent(0), detail::norm_rows);
  detail::require(workspace.extent(0) >= blocks * x.extent(1), "add_rms_norm_backward",
                  "the workspace is too small (see rms_norm_workspace).");
  detail::run_norm_backward(execution, detail::RmsNormBackward<Element, true, true>{
                                           detail::const_span_of<Element>(x), gain.data(), inverse_rms.data(),
                                           detail::const_span_of<Element>(dy),
                                           detail::const_span_of<Element>(d_residual), detail::span_of(dx),
                                           workspace.data(), 0});
  detail::run_sum_partials<MainElement<Element>>(execution, workspace.data(), blocks, x.extent(1),
                                                 d_gain.data(), add);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
