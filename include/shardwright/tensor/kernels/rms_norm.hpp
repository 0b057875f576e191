// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief RMSNorm, optionally fused with the residual addition, forward and backward.

#include <shardwright/tensor/kernels/norm.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

inline void require_norm(bool holds, const char* operation) {
  require(holds, operation,
          "all matrices must be [rows, width], the gain [width] and the inverse RMS [rows].");
}

template <class Element> using RmsNormForward = NormForward<Element, false, false>;
template <class Element, bool input, bool gains>
using RmsNormBackward = NormBackward<Element, false, input, gains, false>;

} // namespace detail

/// @brief Elements (AccumulationElement) of workspace that the gain gradient needs.
[[nodiscard]] constexpr std::size_t rms_norm_workspace(std::size_t rows, std::size_t width) {
  return column_sums_workspace(rows, width);
}

/// @brief y = x / rms(x) * gain, with rms(x)^2 = mean(x^2) + epsilon over a row (Zhang and Sennrich 2019).
/// @param x            [rows, width]
/// @param gain         [width]
/// @param y            [rows, width]; may be `x`
/// @param inverse_rms  AccumulationElement [rows], written for the backward pass
template <class Execution, KernelMatrix X, KernelVector Gain, KernelMatrix Y, KernelVector Rms>
void rms_norm_forward(const Execution& execution, const X& x, const Gain& gain, double epsilon, const Y& y,
                      const Rms& inverse_rms) {
  using Element = typename Y::value_type;
  detail::require_norm(x.extent(0) == y.extent(0) && x.extent(1) == y.extent(1) &&
                           gain.extent(0) == x.extent(1) && inverse_rms.extent(0) == x.extent(0),
                       "rms_norm_forward");
  detail::run_lanes(
      "sw::rms_norm", execution, x.extent(0),
      detail::RmsNormForward<Element>{.x = detail::const_span_of<Element>(x),
                                      .gain = gain.data(),
                                      .epsilon = static_cast<AccumulationElement<Element>>(epsilon),
                                      .y = detail::span_of(y),
                                      .inverse = inverse_rms.data()});
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
  detail::run_lanes(
      "sw::rms_norm", execution, residual.extent(0),
      detail::RmsNormForward<Element>{.x = detail::const_span_of<Element>(residual),
                                      .branch = detail::const_span_of<Element>(branch),
                                      .gain = gain.data(),
                                      .epsilon = static_cast<AccumulationElement<Element>>(epsilon),
                                      .sum = detail::span_of(sum),
                                      .y = detail::span_of(y),
                                      .inverse = inverse_rms.data()});
}

/// @brief dx = gradient of rms_norm with respect to x.
/// @param x            [rows, width], the input of the forward pass (the sum, if it was fused)
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
  detail::run_norm_backward(
      "sw::d_rms_norm", execution,
      detail::RmsNormBackward<Element, true, false>{.x = detail::const_span_of<Element>(x),
                                                    .gain = gain.data(),
                                                    .inverse = inverse_rms.data(),
                                                    .dy = detail::const_span_of<Element>(dy),
                                                    .dx = detail::span_of(dx)});
}

/// @brief d_gain (+)= gradient of rms_norm with respect to the gain, rows in fixed order.
/// @param d_gain     AccumulationElement [width]
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
  const std::size_t blocks = detail::blocks_of(x.extent(0), detail::column_sum_rows);
  detail::require(workspace.extent(0) >= blocks * x.extent(1), "rms_norm_backward_gain",
                  "the workspace is too small (see rms_norm_workspace).");
  detail::run_norm_backward(
      "sw::d_rms_norm", execution,
      detail::RmsNormBackward<Element, false, true>{.x = detail::const_span_of<Element>(x),
                                                    .inverse = inverse_rms.data(),
                                                    .dy = detail::const_span_of<Element>(dy),
                                                    .partial = workspace.data()});
  detail::run_sum_partials<AccumulationElement<Element>>(execution, workspace.data(), blocks, x.extent(1),
                                                         d_gain.data(), add);
}

/// @brief Both gradients in one pass, with the residual stream's gradient added: dx = d_residual + d rms_norm
/// / dx.
///
/// After `sum = residual + branch; y = rms_norm(sum)` and with the gradient `d_residual` that reaches the sum
/// by other paths, dx is the gradient of the sum, and so of both summands.
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
  const std::size_t blocks = detail::blocks_of(x.extent(0), detail::column_sum_rows);
  detail::require(workspace.extent(0) >= blocks * x.extent(1), "add_rms_norm_backward",
                  "the workspace is too small (see rms_norm_workspace).");
  detail::run_norm_backward(
      "sw::d_rms_norm", execution,
      detail::RmsNormBackward<Element, true, true>{.x = detail::const_span_of<Element>(x),
                                                   .gain = gain.data(),
                                                   .inverse = inverse_rms.data(),
                                                   .dy = detail::const_span_of<Element>(dy),
                                                   .d_residual = detail::const_span_of<Element>(d_residual),
                                                   .dx = detail::span_of(dx),
                                                   .partial = workspace.data()});
  detail::run_sum_partials<AccumulationElement<Element>>(execution, workspace.data(), blocks, x.extent(1),
                                                         d_gain.data(), add);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
