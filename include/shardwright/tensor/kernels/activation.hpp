// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief GELU, SiLU and ReLU, forward and backward, on contiguous views of any rank.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/math.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// GELU in its tanh form, 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
struct Gelu {
  template <class Element>
  SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    return x * sigmoid_of<Element>(Element(1.5957691216057307) * (x + Element(0.044715) * (x * x * x)));
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> x) {
    const Lanes<Element> square = x * x;
    const Lanes<Element> s =
        sigmoid_of<Element>(Element(1.5957691216057307) * (x + Element(0.044715) * (x * square)));
    const Lanes<Element> inner = Element(1.5957691216057307) * (Element(1) + Element(3 * 0.044715) * square);
    return s + x * s * (Element(1) - s) * inner;
  }
};

struct Silu {
  template <class Element>
  SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    return x * sigmoid_of<Element>(x);
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> x) {
    const Lanes<Element> s = sigmoid_of<Element>(x);
    return s * (Element(1) + x * (Element(1) - s));
  }
};

struct Relu {
  template <class Element>
  SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    const Lanes<Element> zero{};
    return chosen(x < zero, zero, x); // this way round a NaN stays
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> x) {
    const Lanes<Element> zero{};
    return chosen(x <= zero, zero, broadcast(Element(1)));
  }
};

template <class Element, class Function>
struct ActivationForward {
  const Element* x;
  Element* y;
  template <class Chunk>
  SHARDWRIGHT_FUNCTION void operator()(Chunk chunk, std::size_t i) const {
    chunk.store(y + i, Function::template value<MainElement<Element>>(chunk.load(x + i)));
  }
  template <class Use>
  SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const {
    use(x, y);
  }
};

template <class Element, class Function>
struct ActivationBackward {
  const Element* x;
  const Element* dy;
  Element* dx;
  template <class Chunk>
  SHARDWRIGHT_FUNCTION void operator()(Chunk chunk, std::size_t i) const {
    chunk.store(dx + i,
                chunk.load(dy + i) * Function::template slope<MainElement<Element>>(chunk.load(x + i)));
  }
  template <class Use>
  SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const {
    use(x, dy, dx);
  }
};

template <class Function, class Execution, KernelView X, KernelView Y>
void activation_forward(const char* operation, const Execution& execution, const X& x, const Y& y) {
  using Element = typename Y::value_type;
  const auto from = flat_span_of(x, operation);
  const auto to = flat_span_of(y, operation);
  require(from.size == to.size, operation, "input and output must have the same size.");
  run_elementwise<Element>(operation, execution, to.size,
                           ActivationForward<Element, Function>{from.data, to.data});
}

template <class Function, class Execution, KernelView X, KernelView DY, KernelView DX>
void activation_backward(const char* operation, const Execution& execution, const X& x, const DY& dy,
                         const DX& dx) {
  using Element = typename DX::value_type;
  const auto input = flat_span_of(x, operation);
  const auto from = flat_span_of(dy, operation);
  const auto to = flat_span_of(dx, operation);
  require(input.size == to.size && from.size == to.size, operation,
          "the input and both gradients must have the same size.");
  run_elementwise<Element>(operation, execution, to.size,
                           ActivationBackward<Element, Function>{input.data, from.data, to.data});
}

} // namespace detail

/// @brief y = GELU(x) in its tanh form (Hendrycks and Gimpel 2016, arXiv 1606.08415); `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void gelu_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::Gelu>("gelu_forward", execution, x, y);
}

/// @brief dx = dy * GELU'(x), with the x of the forward pass; `dx` may be `dy` or `x`.
template <class Execution, KernelView X, KernelView DY, KernelView DX>
void gelu_backward(const Execution& execution, const X& x, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::Gelu>("gelu_backward", execution, x, dy, dx);
}

/// @brief y = x * sigmoid(x); `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void silu_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::Silu>("silu_forward", execution, x, y);
}

/// @brief dx = dy * d silu(x) / dx, with the x of the forward pass; `dx` may be `dy` or `x`.
template <class Execution, KernelView X, KernelView DY, KernelView DX>
void silu_backward(const Execution& execution, const X& x, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::Silu>("silu_backward", execution, x, dy, dx);
}

/// @brief y = max(x, 0), a NaN stays; `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void relu_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::Relu>("relu_forward", execution, x, y);
}

/// @brief dx = dy where x > 0, else 0; `dx` may be `dy` or `x`.
template <class Execution, KernelView X, KernelView DY, KernelView DX>
void relu_backward(const Execution& execution, const X& x, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::Relu>("relu_backward", execution, x, dy, dx);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
