// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The formulas of elementwise functions and of their gradients.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/tensor/kernels/terms.hpp>

#include <string_view>

// The objects and functions of the same names are declared after these formulas: a name of an object would
// hide the functions that are found through the argument, and device code cannot use the object.

/// @brief Operations as types. An elementwise function has its name, a formula, and the slope by which the
/// gradient is multiplied: a function of x or, if `slope_of_result` is set, of the result, so that x need not
/// be kept. One of two operands has a gradient for each of them. The gradient for a complex number z is that
/// for its real part plus i times that for its imaginary part; that of a derivable function is therefore
/// multiplied by the conjugate of the derivative.
namespace shardwright::inline SHARDWRIGHT_ABI::operation {

/// @brief GELU in its tanh form, x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks and
/// Gimpel, arXiv 1606.08415, section 2).
struct GeluTanh {
  static constexpr std::string_view name = "gelu_tanh";
  static constexpr bool slope_of_result = false;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const {
    return x * sigmoid(1.5957691216057307 * (x + 0.044715 * (x * x * x)));
  }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V x) const {
    const V square = x * x;
    const V s = sigmoid(1.5957691216057307 * (x + 0.044715 * (x * square)));
    return s + x * s * (1 - s) * (1.5957691216057307 * (1 + 3 * 0.044715 * square));
  }
};

/// @brief GELU as defined, x times the normal distribution below x (the same paper).
struct GeluErf {
  static constexpr std::string_view name = "gelu_erf";
  static constexpr bool slope_of_result = false;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return x * normal_below(x); }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V x) const {
    return normal_below(x) + x * normal_density(x);
  }
};

/// @brief x sigmoid(x) (Elfwing et al., arXiv 1702.03118, section 2.1).
struct Silu {
  static constexpr std::string_view name = "silu";
  static constexpr bool slope_of_result = false;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return x * sigmoid(x); }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V x) const {
    const V s = sigmoid(x);
    return s + x * s * (1 - s);
  }
};

/// @brief max(x, 0); in this order a NaN is kept.
struct Relu {
  static constexpr std::string_view name = "relu";
  static constexpr bool slope_of_result = true;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return chosen(x < 0, 0, x); }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V y) const { return chosen(y <= 0, 0, 1); }
};

/// @brief 1 / (1 + exp(-x)).
struct Sigmoid {
  static constexpr std::string_view name = "sigmoid";
  static constexpr bool slope_of_result = true;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return sigmoid(x); }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V y) const { return y * (1 - y); }
};

/// @brief The hyperbolic tangent.
struct Tanh {
  static constexpr std::string_view name = "tanh";
  static constexpr bool slope_of_result = true;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return tanh(x); }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V y) const { return 1 - y * y; }
};

/// @brief exp(x).
struct Exp {
  static constexpr std::string_view name = "exp";
  static constexpr bool slope_of_result = true;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return exp(x); }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V y) const { return y; }
};

/// @brief The natural logarithm.
struct Log {
  static constexpr std::string_view name = "log";
  static constexpr bool slope_of_result = false;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return log(x); }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V x) const { return 1 / x; }
};

/// @brief The square root.
struct Sqrt {
  static constexpr std::string_view name = "sqrt";
  static constexpr bool slope_of_result = true;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return sqrt(x); }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V y) const { return 0.5 / y; }
};

/// @brief x^2.
struct Square {
  static constexpr std::string_view name = "square";
  static constexpr bool slope_of_result = false;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return x * x; }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V x) const { return 2 * x; }
};

/// @brief The conjugate of a complex number.
struct Conjugate {
  static constexpr std::string_view name = "conj";
  static constexpr bool takes_complex = true;
  template <class L> using layout = ElementwiseLinearLayout<L>;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V z) const { return conj(z); }
  template <class V> SHARDWRIGHT_FUNCTION V gradient(V dy) const { return conj(dy); }
};

/// @brief left + right.
struct Add {
  static constexpr std::string_view name = "add";
  static constexpr bool takes_integers = true;
  static constexpr bool takes_complex = true;
  template <class Left, class Right> using layout = AddLayout<Left, Right>;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V left, V right) const { return left + right; }
  template <class V> SHARDWRIGHT_FUNCTION Unchanged<V> left_gradient(V dy, Unread, Unread) const {
    return dy;
  }
  template <class V> SHARDWRIGHT_FUNCTION Unchanged<V> right_gradient(V dy, Unread, Unread) const {
    return dy;
  }
};

/// @brief left - right.
struct Subtract {
  static constexpr std::string_view name = "subtract";
  static constexpr bool takes_integers = true;
  static constexpr bool takes_complex = true;
  template <class Left, class Right> using layout = AddLayout<Left, Right>;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V left, V right) const { return left - right; }
  template <class V> SHARDWRIGHT_FUNCTION Unchanged<V> left_gradient(V dy, Unread, Unread) const {
    return dy;
  }
  template <class V> SHARDWRIGHT_FUNCTION V right_gradient(V dy, Unread, Unread) const { return -dy; }
};

/// @brief left * right.
struct Multiply {
  static constexpr std::string_view name = "multiply";
  static constexpr bool takes_integers = true;
  static constexpr bool takes_complex = true;
  template <class Left, class Right> using layout = MultiplyLayout<Left, Right>;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V left, V right) const { return left * right; }
  template <class V> SHARDWRIGHT_FUNCTION V left_gradient(V dy, Unread, V right) const {
    return dy * conj(right);
  }
  template <class V> SHARDWRIGHT_FUNCTION V right_gradient(V dy, V left, Unread) const {
    return dy * conj(left);
  }
};

/// @brief left / right.
struct Divide {
  static constexpr std::string_view name = "divide";
  static constexpr bool takes_complex = true;
  template <class Left, class Right> using layout = DivideLayout<Left, Right>;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V left, V right) const { return left / right; }
  template <class V> SHARDWRIGHT_FUNCTION V left_gradient(V dy, Unread, V right) const {
    return dy / conj(right);
  }
  template <class V> SHARDWRIGHT_FUNCTION V right_gradient(V dy, V left, V right) const {
    return -(dy / conj(right)) * conj(left / right);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::operation
