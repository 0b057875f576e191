// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief SwiGLU on a fused [gate | up] buffer, forward and backward.

#include <shardwright/tensor/kernels/formulas.hpp>
#include <shardwright/tensor/kernels/lanes/prefetch.hpp>
#include <shardwright/tensor/kernels/lanes/value.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

template <class Element> struct SwigluForward {
  MatrixSpan<const Element> gate_up;
  MatrixSpan<Element> out;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i, std::size_t begin, std::size_t end) const {
    using Number = AccumulationElement<Element>;
    const Element* gate = gate_up.row(i);
    const Element* up = gate + out.columns;
    Element* to = out.row(i);
    for_chunks<Number>(
        begin, end,
        [gate, up, to](auto chunk, std::size_t c) {
          prefetch_ahead(gate + c, up + c, to + c);
          const auto g = Value<Number>::of(chunk.load(gate + c));
          chunk.store(to + c, operation::Silu()(g).lanes * chunk.load(up + c));
        },
        gate, up, to);
  }
};

template <class Element> struct SwigluBackward {
  MatrixSpan<const Element> gate_up;
  MatrixSpan<const Element> d_out;
  MatrixSpan<Element> d_gate_up;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i, std::size_t begin, std::size_t end) const {
    using Number = AccumulationElement<Element>;
    const std::size_t hidden = d_out.columns;
    const Element* gate = gate_up.row(i);
    const Element* up = gate + hidden;
    const Element* from = d_out.row(i);
    Element* d_gate = d_gate_up.row(i);
    Element* d_up = d_gate + hidden;
    for_chunks<Number>(
        begin, end,
        [gate, up, from, d_gate, d_up](auto chunk, std::size_t c) {
          prefetch_ahead(gate + c, up + c, from + c);
          const auto g = Value<Number>::of(chunk.load(gate + c));
          const Lanes<Number> u = chunk.load(up + c);
          const Lanes<Number> d = chunk.load(from + c);
          chunk.store(d_up + c, d * operation::Silu()(g).lanes);
          chunk.store(d_gate + c, d * u * operation::Silu().slope(g).lanes);
        },
        gate, up, from, d_gate, d_up);
  }
};

} // namespace detail

/// @brief out = silu(gate) * up (Shazeer 2020, arXiv 2002.05202).
/// @param gate_up  [tokens, 2 hidden]: gate, then up
/// @param out      [tokens, hidden]
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix GateUp, KernelMatrix Out>
void swiglu_forward(const Execution& execution, const GateUp& gate_up, const Out& out) {
  using Element = typename Out::value_type;
  require(gate_up.extent(0) == out.extent(0) && gate_up.extent(1) == 2 * out.extent(1), "swiglu_forward",
          "the input must be [tokens, 2 hidden] for an output [tokens, hidden].");
  moves("sw::swiglu", execution, gate_up, out);
  run_pieces("sw::swiglu", execution, out.extent(0), out.extent(1), 4096,
             detail::SwigluForward<Element>{span_of(gate_up), span_of(out)});
}

/// @brief d_gate_up from the gate and up values of the forward pass and d_out.
/// @param gate_up    [tokens, 2 hidden]
/// @param d_out      [tokens, hidden]
/// @param d_gate_up  [tokens, 2 hidden]; may be `gate_up`
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix GateUp, KernelMatrix DOut, KernelMatrix DGateUp>
void swiglu_backward(const Execution& execution, const GateUp& gate_up, const DOut& d_out,
                     const DGateUp& d_gate_up) {
  using Element = typename DGateUp::value_type;
  require(gate_up.extent(0) == d_out.extent(0) && gate_up.extent(1) == 2 * d_out.extent(1) &&
              d_gate_up.extent(0) == d_out.extent(0) && d_gate_up.extent(1) == 2 * d_out.extent(1),
          "swiglu_backward",
          "input and its gradient must be [tokens, 2 hidden] for an output [tokens, hidden].");
  moves("sw::d_swiglu", execution, gate_up, d_out, d_gate_up);
  run_pieces("sw::d_swiglu", execution, d_out.extent(0), d_out.extent(1), 4096,
             detail::SwigluBackward<Element>{span_of(gate_up), span_of(d_out), span_of(d_gate_up)});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
