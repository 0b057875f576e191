// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Softmax and its logarithm over rows, forward and backward.

#include <shardwright/tensor/kernels/lanes/math.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cmath>
#include <cstddef>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// y = exp(x - max) / (the sum of these), or its logarithm. `y` may be `x`.
template <class Element, bool logarithm> struct SoftmaxForward {
  using Number = AccumulationElement<Element>;
  MatrixSpan<const Element> x;
  MatrixSpan<Element> y;
  Number lowest; // the largest of no numbers

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const Element* in = x.row(i);
    Element* out = y.row(i);
    const Number filler = lowest;
    Lanes<Number> best = broadcast(filler);
    for_chunks<Number, 4, true>(
        0, x.columns,
        [in, filler, &best](auto chunk, std::size_t c) {
          best = larger(chunk.load_or(in + c, filler), best);
        },
        in);
    const Number shift = largest_of<Number>(best);
    Lanes<Number> total{};
    for_chunks<Number, 1, true>(
        0, x.columns,
        [=, &total](auto chunk, std::size_t c) {
          const Lanes<Number> power = exp_of_nonpositive<Number>(chunk.load(in + c) - shift);
          if constexpr (keeps_powers)
            chunk.store(out + c, power);
          total += chunk.keep(power, Number(0));
        },
        in, out);
    const Number sum = sum_of<Number>(total);
    if constexpr (logarithm) {
      const Number less = shift + std::log(sum);
      for_chunks<Number, 1, true>(
          0, x.columns,
          [in, out, less](auto chunk, std::size_t c) { chunk.store(out + c, chunk.load(in + c) - less); }, in,
          out);
    } else {
      const Number factor = Number(1) / sum;
      for_chunks<Number, 1, true>(
          0, x.columns,
          [=](auto chunk, std::size_t c) {
            if constexpr (keeps_powers)
              chunk.store(out + c, chunk.load(out + c) * factor);
            else
              chunk.store(out + c, exp_of_nonpositive<Number>(chunk.load(in + c) - shift) * factor);
          },
          in, out);
    }
  }

private:
  /// Storing them as 16-bit elements would round twice.
  static constexpr bool keeps_powers = !logarithm && !is_narrow<Element>;
};

/// dx = y (dy - sum of dy y), and of the logarithm dy - exp(y) sum of dy. `dx` may be `dy` or `y`.
template <class Element, bool logarithm> struct SoftmaxBackward {
  using Number = AccumulationElement<Element>;
  MatrixSpan<const Element> y;
  MatrixSpan<const Element> dy;
  MatrixSpan<Element> dx;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const Element* result = y.row(i);
    const Element* from = dy.row(i);
    Element* to = dx.row(i);
    Lanes<Number> total{};
    for_chunks<Number, 4, true>(
        0, y.columns,
        [result, from, &total](auto chunk, std::size_t c) {
          if constexpr (logarithm)
            total += chunk.load(from + c);
          else
            total += chunk.load(from + c) * chunk.load(result + c);
        },
        result, from);
    const Number sum = sum_of<Number>(total);
    for_chunks<Number, 1, true>(
        0, y.columns,
        [result, from, to, sum](auto chunk, std::size_t c) {
          const Lanes<Number> slope = chunk.load(from + c);
          const Lanes<Number> value = chunk.load(result + c);
          if constexpr (logarithm)
            chunk.store(to + c, slope - exp_of<Number>(value) * sum);
          else
            chunk.store(to + c, value * (slope - sum));
        },
        result, from, to);
  }
};

} // namespace detail

/// @brief y[row, c] = exp(x[row, c]) / sum over the row of exp(x), computed with the row's largest number
/// subtracted, or the logarithm of it; `y` may be `x`. Results below the normal range are 0.
/// @throws InvalidArgument unless x and y are [rows, columns] of one shape.
template <bool logarithm, class Execution, KernelMatrix X, KernelMatrix Y>
void softmax_forward(const Execution& execution, const X& x, const Y& y) {
  using Element = typename Y::value_type;
  require(x.extent(0) == y.extent(0) && x.extent(1) == y.extent(1),
          logarithm ? "log_softmax_forward" : "softmax_forward",
          "input and output must have the same shape.");
  const char* const label = logarithm ? "sw::log_softmax" : "sw::softmax";
  moves(label, execution, x, y);
  run_lanes(label, execution, x.extent(0),
            detail::SoftmaxForward<Element, logarithm>{
                span_of(x), span_of(y), -std::numeric_limits<AccumulationElement<Element>>::infinity()});
}

/// @brief dx = y (dy - sum over the row of dy y), with the result y of the forward pass, or of the logarithm
/// dy - exp(y) sum over the row of dy; `dx` may be `dy` or `y`.
/// @throws InvalidArgument unless y, dy and dx are [rows, columns] of one shape.
template <bool logarithm, class Execution, KernelMatrix Y, KernelMatrix DY, KernelMatrix DX>
void softmax_backward(const Execution& execution, const Y& y, const DY& dy, const DX& dx) {
  require(y.extent(0) == dy.extent(0) && y.extent(1) == dy.extent(1) && y.extent(0) == dx.extent(0) &&
              y.extent(1) == dx.extent(1),
          logarithm ? "log_softmax_backward" : "softmax_backward",
          "the result and both gradients must have the same shape.");
  const char* const label = logarithm ? "sw::d_lsoftmax" : "sw::d_softmax";
  moves(label, execution, y, dy, dx);
  run_lanes(
      label, execution, y.extent(0),
      detail::SoftmaxBackward<typename DX::value_type, logarithm>{span_of(y), span_of(dy), span_of(dx)});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
