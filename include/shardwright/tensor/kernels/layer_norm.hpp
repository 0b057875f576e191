// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief LayerNorm, optionally fused with the residual addition, forward and backward, with or without a
/// bias.

#include <shardwright/tensor/kernels/norm.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

template <bool biased, class Execution, class X, class Branch, class Gain, class Bias, class Sum, class Y,
          class Rows>
void run_layer_norm(const Execution& execution, const X& x, const Branch& branch, const Gain& gain,
                    const Bias& bias, double epsilon, const Sum& sum, const Y& y, const Rows& mean,
                    const Rows& inverse_deviation) {
  using Element = typename Y::value_type;
  run_lanes("sw::layer_norm", execution, x.extent(0),
            NormForward<Element, true, biased>{.x = const_span_of<Element>(x),
                                               .branch = branch,
                                               .gain = gain.data(),
                                               .bias = bias.data(),
                                               .epsilon = static_cast<AccumulationElement<Element>>(epsilon),
                                               .sum = sum,
                                               .y = span_of(y),
                                               .mean = mean.data(),
                                               .inverse = inverse_deviation.data()});
}

template <class X, class Gain, class Bias, class Rows>
void require_layer_norm(const char* operation, const X& x, const Gain& gain, const Bias& bias,
                        const Rows& mean, const Rows& inverse_deviation, bool same) {
  require(same && gain.extent(0) == x.extent(1) && (bias.extent(0) == 0 || bias.extent(0) == x.extent(1)) &&
              mean.extent(0) == x.extent(0) && inverse_deviation.extent(0) == x.extent(0),
          operation,
          "all matrices must be [rows, width], gain and bias [width], mean and inverse deviation [rows].");
}

template <bool biased, class Execution, class X, class Gain, class Rows, class DY, class DX, class DGain,
          class DBias, class Work>
void run_layer_norm_backward(const Execution& execution, const X& x, const Gain& gain, const Rows& mean,
                             const Rows& inverse_deviation, const DY& dy,
                             MatrixSpan<const typename DX::value_type> d_residual, const DX& dx,
                             const DGain& d_gain, const DBias& d_bias, const Work& workspace, bool add_gain,
                             bool add_bias) {
  using Element = typename DX::value_type;
  using Number = AccumulationElement<Element>;
  run_norm_backward("sw::d_layer_norm", execution,
                    NormBackward<Element, true, true, true, biased>{.x = const_span_of<Element>(x),
                                                                    .gain = gain.data(),
                                                                    .mean = mean.data(),
                                                                    .inverse = inverse_deviation.data(),
                                                                    .dy = const_span_of<Element>(dy),
                                                                    .d_residual = d_residual,
                                                                    .dx = span_of(dx),
                                                                    .partial = workspace.data()});
  const std::size_t blocks = blocks_of(x.extent(0), column_sum_rows);
  const Number* const sums = workspace.data();
  run_sum_partials<Number>(execution, sums, blocks, x.extent(1), d_gain.data(), add_gain);
  if constexpr (biased)
    run_sum_partials<Number>(execution, sums + blocks * x.extent(1), blocks, x.extent(1), d_bias.data(),
                             add_bias);
}

} // namespace detail

/// @brief Elements (AccumulationElement) of workspace that the gradients of gain and bias need.
[[nodiscard]] constexpr std::size_t layer_norm_workspace(std::size_t rows, std::size_t width) {
  return 2 * column_sums_workspace(rows, width);
}

/// @brief y = (x - mean) / sqrt(variance + epsilon) * gain + bias over each row (Ba et al., arXiv 1607.06450,
/// equation 4, with the biased variance).
/// @param x                  [rows, width]
/// @param gain               [width]
/// @param bias               [width], or [0] for none
/// @param y                  [rows, width]; may be `x`
/// @param mean               AccumulationElement [rows], written for the backward pass
/// @param inverse_deviation  AccumulationElement [rows], 1 / sqrt(variance + epsilon), written for the
/// backward pass
template <class Execution, KernelMatrix X, KernelVector Gain, KernelVector Bias, KernelMatrix Y,
          KernelVector Rows>
void layer_norm_forward(const Execution& execution, const X& x, const Gain& gain, const Bias& bias,
                        double epsilon, const Y& y, const Rows& mean, const Rows& inverse_deviation) {
  using Element = typename Y::value_type;
  detail::require_layer_norm("layer_norm_forward", x, gain, bias, mean, inverse_deviation,
                             x.extent(0) == y.extent(0) && x.extent(1) == y.extent(1));
  const detail::MatrixSpan<const Element> none{};
  const detail::MatrixSpan<Element> no_sum{};
  if (bias.extent(0) > 0)
    detail::run_layer_norm<true>(execution, x, none, gain, bias, epsilon, no_sum, y, mean, inverse_deviation);
  else
    detail::run_layer_norm<false>(execution, x, none, gain, bias, epsilon, no_sum, y, mean,
                                  inverse_deviation);
}

/// @brief sum = residual + branch and y = layer_norm(sum), in one pass over memory.
/// @param sum  [rows, width]; may be `residual` or `branch`
template <class Execution, KernelMatrix Residual, KernelMatrix Branch, KernelVector Gain, KernelVector Bias,
          KernelMatrix Sum, KernelMatrix Y, KernelVector Rows>
void add_layer_norm_forward(const Execution& execution, const Residual& residual, const Branch& branch,
                            const Gain& gain, const Bias& bias, double epsilon, const Sum& sum, const Y& y,
                            const Rows& mean, const Rows& inverse_deviation) {
  using Element = typename Y::value_type;
  const auto same = [&residual](const auto& m) {
    return m.extent(0) == residual.extent(0) && m.extent(1) == residual.extent(1);
  };
  detail::require_layer_norm("add_layer_norm_forward", residual, gain, bias, mean, inverse_deviation,
                             same(branch) && same(sum) && same(y));
  const auto added = detail::const_span_of<Element>(branch);
  if (bias.extent(0) > 0)
    detail::run_layer_norm<true>(execution, residual, added, gain, bias, epsilon, detail::span_of(sum), y,
                                 mean, inverse_deviation);
  else
    detail::run_layer_norm<false>(execution, residual, added, gain, bias, epsilon, detail::span_of(sum), y,
                                  mean, inverse_deviation);
}

/// @brief dx = gradient of layer_norm with respect to x, and d_gain (+)= and d_bias (+)= those with respect
/// to gain and bias, rows in fixed order, in one pass over memory.
/// @param x                  [rows, width], the input of the forward pass (the sum, if it was fused)
/// @param mean               [rows], from the forward pass
/// @param inverse_deviation  [rows], from the forward pass
/// @param dy                 [rows, width]
/// @param dx                 [rows, width]; may be `dy`
/// @param d_gain             AccumulationElement [width]
/// @param d_bias             AccumulationElement [width], or [0] if there is no bias
/// @param workspace          [layer_norm_workspace(rows, width)] elements
/// @param add_gain, add_bias false overwrites
template <class Execution, KernelMatrix X, KernelVector Gain, KernelVector Rows, KernelMatrix DY,
          KernelMatrix DX, KernelVector DGain, KernelVector DBias, KernelVector Work>
void layer_norm_backward(const Execution& execution, const X& x, const Gain& gain, const Rows& mean,
                         const Rows& inverse_deviation, const DY& dy, const DX& dx, const DGain& d_gain,
                         const DBias& d_bias, const Work& workspace, bool add_gain = false,
                         bool add_bias = false) {
  using Element = typename DX::value_type;
  const auto same = [&x](const auto& m) { return m.extent(0) == x.extent(0) && m.extent(1) == x.extent(1); };
  detail::require_layer_norm("layer_norm_backward", x, gain, d_bias, mean, inverse_deviation,
                             same(dy) && same(dx) && d_gain.extent(0) == x.extent(1));
  detail::require(workspace.extent(0) >= layer_norm_workspace(x.extent(0), x.extent(1)),
                  "layer_norm_backward", "the workspace is too small (see layer_norm_workspace).");
  const detail::MatrixSpan<const Element> none{};
  if (d_bias.extent(0) > 0)
    detail::run_layer_norm_backward<true>(execution, x, gain, mean, inverse_deviation, dy, none, dx, d_gain,
                                          d_bias, workspace, add_gain, add_bias);
  else
    detail::run_layer_norm_backward<false>(execution, x, gain, mean, inverse_deviation, dy, none, dx, d_gain,
                                           d_bias, workspace, add_gain, add_bias);
}

/// @brief The same with the residual stream's gradient added: dx = d_residual + d layer_norm / dx; see
/// add_rms_norm_backward.
/// @param d_residual  [rows, width]; may be `dx`
template <class Execution, KernelMatrix X, KernelVector Gain, KernelVector Rows, KernelMatrix DY,
          KernelMatrix DResidual, KernelMatrix DX, KernelVector DGain, KernelVector DBias, KernelVector Work>
void add_layer_norm_backward(const Execution& execution, const X& x, const Gain& gain, const Rows& mean,
                             const Rows& inverse_deviation, const DY& dy, const DResidual& d_residual,
                             const DX& dx, const DGain& d_gain, const DBias& d_bias, const Work& workspace,
                             bool add_gain = false, bool add_bias = false) {
  using Element = typename DX::value_type;
  const auto same = [&x](const auto& m) { return m.extent(0) == x.extent(0) && m.extent(1) == x.extent(1); };
  detail::require_layer_norm("add_layer_norm_backward", x, gain, d_bias, mean, inverse_deviation,
                             same(dy) && same(d_residual) && same(dx) && d_gain.extent(0) == x.extent(1));
  detail::require(workspace.extent(0) >= layer_norm_workspace(x.extent(0), x.extent(1)),
                  "add_layer_norm_backward", "the workspace is too small (see layer_norm_workspace).");
  const auto residual = detail::const_span_of<Element>(d_residual);
  if (d_bias.extent(0) > 0)
    detail::run_layer_norm_backward<true>(execution, x, gain, mean, inverse_deviation, dy, residual, dx,
                                          d_gain, d_bias, workspace, add_gain, add_bias);
  else
    detail::run_layer_norm_backward<false>(execution, x, gain, mean, inverse_deviation, dy, residual, dx,
                                           d_gain, d_bias, workspace, add_gain, add_bias);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
