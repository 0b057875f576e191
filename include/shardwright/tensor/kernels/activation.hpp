// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Elementwise functions, forward and backward, on contiguous views of any rank: GELU, SiLU, ReLU,
/// sigmoid, tanh, exponential, logarithm, square root, square.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/lanes/math.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

// Elementwise functions, and the slopes by which gradients are multiplied. A slope is a function of the
// element or, if `slope_of_result` is set, of the result, so that the element need not be kept.

/// GELU in its tanh form, 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh {
  static constexpr bool slope_of_result = false;
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    return x * sigmoid_of<Element>(Element(1.5957691216057307) * (x + Element(0.044715) * (x * x * x)));
  }
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> x) {
    const Lanes<Element> square = x * x;
    const Lanes<Element> s =
        sigmoid_of<Element>(Element(1.5957691216057307) * (x + Element(0.044715) * (x * square)));
    const Lanes<Element> inner = Element(1.5957691216057307) * (Element(1) + Element(3 * 0.044715) * square);
    return s + x * s * (Element(1) - s) * inner;
  }
};

/// GELU as defined, x times the normal distribution of x.
struct GeluErf {
  static constexpr bool slope_of_result = false;
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    return x * NormalDistribution<Element>(x).below;
  }
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> x) {
    const NormalDistribution<Element> normal(x);
    return normal.below + x * normal.density;
  }
};

struct Silu {
  static constexpr bool slope_of_result = false;
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    return x * sigmoid_of<Element>(x);
  }
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> x) {
    const Lanes<Element> s = sigmoid_of<Element>(x);
    return s * (Element(1) + x * (Element(1) - s));
  }
};

struct Relu {
  static constexpr bool slope_of_result = true;
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    const Lanes<Element> zero{};
    return chosen(x < zero, zero, x); // in this order, a NaN is kept
  }
  /// The result is above zero if the element is.
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> y) {
    const Lanes<Element> zero{};
    return chosen(y <= zero, zero, broadcast(Element(1)));
  }
};

struct Sigmoid {
  static constexpr bool slope_of_result = true;
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    return sigmoid_of<Element>(x);
  }
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> y) {
    return y * (Element(1) - y);
  }
};

struct Tanh {
  static constexpr bool slope_of_result = true;
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    return tanh_of<Element>(x);
  }
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> y) {
    return Element(1) - y * y;
  }
};

struct Exp {
  static constexpr bool slope_of_result = true;
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    return exp_of<Element>(x);
  }
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> y) { return y; }
};

struct Log {
  static constexpr bool slope_of_result = false;
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    return log_of<Element>(x);
  }
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> x) {
    return Element(1) / x;
  }
};

struct Sqrt {
  static constexpr bool slope_of_result = true;
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    return sqrt_of<Element>(x);
  }
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> y) {
    return Element(0.5) / y;
  }
};

struct Square {
  static constexpr bool slope_of_result = false;
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> value(Lanes<Element> x) {
    return x * x;
  }
  template <class Element> SHARDWRIGHT_FUNCTION static Lanes<Element> slope(Lanes<Element> x) {
    return x + x;
  }
};

template <class Element, class Function> struct ActivationForward {
  const Element* x;
  Element* y;
  template <class Chunk> SHARDWRIGHT_FUNCTION void operator()(Chunk chunk, std::size_t i) const {
    chunk.store(y + i, Function::template value<MainElement<Element>>(chunk.load(x + i)));
  }
  template <class Use> SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const { use(x, y); }
};

template <class Element, class Function> struct ActivationBackward {
  const Element* x;
  const Element* dy;
  Element* dx;
  template <class Chunk> SHARDWRIGHT_FUNCTION void operator()(Chunk chunk, std::size_t i) const {
    chunk.store(dx + i,
                chunk.load(dy + i) * Function::template slope<MainElement<Element>>(chunk.load(x + i)));
  }
  template <class Use> SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const { use(x, dy, dx); }
};

template <class Function, class Execution, KernelView X, KernelView Y>
void activation_forward(const char* label, const char* operation, const Execution& execution, const X& x,
                        const Y& y) {
  using Element = typename Y::value_type;
  const auto from = flat_span_of(x, operation);
  const auto to = flat_span_of(y, operation);
  require(from.size == to.size, operation, "input and output must have the same size.");
  run_elementwise<Element>(label, execution, to.size,
                           ActivationForward<Element, Function>{from.data, to.data});
}

template <class Function, class Execution, KernelView X, KernelView DY, KernelView DX>
void activation_backward(const char* label, const char* operation, const Execution& execution, const X& x,
                         const DY& dy, const DX& dx) {
  using Element = typename DX::value_type;
  const auto input = flat_span_of(x, operation);
  const auto from = flat_span_of(dy, operation);
  const auto to = flat_span_of(dx, operation);
  require(input.size == to.size && from.size == to.size, operation,
          "the input and both gradients must have the same size.");
  run_elementwise<Element>(label, execution, to.size,
                           ActivationBackward<Element, Function>{input.data, from.data, to.data});
}

} // namespace detail

/// @brief y = GELU(x) in its tanh form (Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2), as in GPT-2;
/// `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void gelu_tanh_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::GeluTanh>("sw::gelu_tanh", "gelu_tanh_forward", execution, x, y);
}

/// @brief dx = dy * GELU'(x) of the tanh form, with the x of the forward pass; `dx` may be `dy` or `x`.
template <class Execution, KernelView X, KernelView DY, KernelView DX>
void gelu_tanh_backward(const Execution& execution, const X& x, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::GeluTanh>("sw::d_gelu_tanh", "gelu_tanh_backward", execution, x, dy,
                                                dx);
}

/// @brief y = x (1 + erf(x / sqrt(2))) / 2, GELU as Hendrycks and Gimpel define it (2016, arXiv 1606.08415,
/// section 2); `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void gelu_erf_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::GeluErf>("sw::gelu_erf", "gelu_erf_forward", execution, x, y);
}

/// @brief dx = dy * GELU'(x) of the form with erf, with the x of the forward pass; `dx` may be `dy` or `x`.
template <class Execution, KernelView X, KernelView DY, KernelView DX>
void gelu_erf_backward(const Execution& execution, const X& x, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::GeluErf>("sw::d_gelu_erf", "gelu_erf_backward", execution, x, dy, dx);
}

/// @brief y = x * sigmoid(x); `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void silu_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::Silu>("sw::silu", "silu_forward", execution, x, y);
}

/// @brief dx = dy * d silu(x) / dx, with the x of the forward pass; `dx` may be `dy` or `x`.
template <class Execution, KernelView X, KernelView DY, KernelView DX>
void silu_backward(const Execution& execution, const X& x, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::Silu>("sw::d_silu", "silu_backward", execution, x, dy, dx);
}

/// @brief y = max(x, 0), NaN propagates; `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void relu_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::Relu>("sw::relu", "relu_forward", execution, x, y);
}

/// @brief dx = dy where x > 0, else 0, with the x of the forward pass or its result; `dx` may be `dy` or `x`.
template <class Execution, KernelView X, KernelView DY, KernelView DX>
void relu_backward(const Execution& execution, const X& x, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::Relu>("sw::d_relu", "relu_backward", execution, x, dy, dx);
}

/// @brief y = 1 / (1 + exp(-x)) of every element; `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void sigmoid_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::Sigmoid>("sw::sigmoid", "sigmoid_forward", execution, x, y);
}

/// @brief dx = dy * y (1 - y), with the result y of the forward pass; `dx` may be either.
template <class Execution, KernelView V, KernelView DY, KernelView DX>
void sigmoid_backward(const Execution& execution, const V& y, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::Sigmoid>("sw::d_sigmoid", "sigmoid_backward", execution, y, dy, dx);
}

/// @brief y = tanh(x) of every element; `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void tanh_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::Tanh>("sw::tanh", "tanh_forward", execution, x, y);
}

/// @brief dx = dy * (1 - y^2), with the result y of the forward pass; `dx` may be either.
template <class Execution, KernelView V, KernelView DY, KernelView DX>
void tanh_backward(const Execution& execution, const V& y, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::Tanh>("sw::d_tanh", "tanh_backward", execution, y, dy, dx);
}

/// @brief y = exp(x) of every element; `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void exp_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::Exp>("sw::exp", "exp_forward", execution, x, y);
}

/// @brief dx = dy * y, with the result y of the forward pass; `dx` may be either.
template <class Execution, KernelView V, KernelView DY, KernelView DX>
void exp_backward(const Execution& execution, const V& y, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::Exp>("sw::d_exp", "exp_backward", execution, y, dy, dx);
}

/// @brief y = the natural logarithm of every element; `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void log_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::Log>("sw::log", "log_forward", execution, x, y);
}

/// @brief dx = dy / x, with the x of the forward pass; `dx` may be either.
template <class Execution, KernelView V, KernelView DY, KernelView DX>
void log_backward(const Execution& execution, const V& x, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::Log>("sw::d_log", "log_backward", execution, x, dy, dx);
}

/// @brief y = the square root of every element; `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void sqrt_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::Sqrt>("sw::sqrt", "sqrt_forward", execution, x, y);
}

/// @brief dx = dy / (2 y), with the result y of the forward pass; `dx` may be either.
template <class Execution, KernelView V, KernelView DY, KernelView DX>
void sqrt_backward(const Execution& execution, const V& y, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::Sqrt>("sw::d_sqrt", "sqrt_backward", execution, y, dy, dx);
}

/// @brief y = x^2 of every element; `y` may be `x`.
template <class Execution, KernelView X, KernelView Y>
void square_forward(const Execution& execution, const X& x, const Y& y) {
  detail::activation_forward<detail::Square>("sw::square", "square_forward", execution, x, y);
}

/// @brief dx = dy * 2 x, with the x of the forward pass; `dx` may be either.
template <class Execution, KernelView V, KernelView DY, KernelView DX>
void square_backward(const Execution& execution, const V& x, const DY& dy, const DX& dx) {
  detail::activation_backward<detail::Square>("sw::d_square", "square_backward", execution, x, dy, dx);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
