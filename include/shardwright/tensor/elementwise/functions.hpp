// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Nonlinear elementwise functions, with their gradients.

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/elementwise/map_kernels.hpp>
#include <shardwright/tensor/kernels/activation.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// out = function(from), element by element.
template <class Function, class Element, class Out> void map_elements_of(const Element* from, Out& out) {
  if (out.local_size() > 0)
    kernels::detail::run_elementwise<Element>(
        "sw::map", out.execution(), out.local_size(),
        kernels::detail::ActivationForward<Element, Function>{from, out.mutable_data()});
}

template <class Tag, class Function, class Out, class X>
void mapped_into(Out& out, const X& x, SourceLocation where) {
  using Result = ResultTensor<ElementwiseFunctionLayout<Tag, typename X::layout>, X>;
  if constexpr (!any_invalid<typename Result::layout> && RealOperand<Tag, typename X::value_type>::value) {
    if constexpr (DestinationOf<Result, Out>::value) {
      require_one_mesh(Tag::name.data(), x, out, where);
      require_shape(Tag::name.data(), "destination", out.shape(), x.shape(), x.core(), where);
      map_elements_of<Function>(x.data(), out);
    }
  }
}

} // namespace detail

namespace operation {

/// @brief An elementwise function with its gradient, dy times the slope of the function; both reuse the
/// memory of moved-in operands. `Function` (tensor/kernels/activation.hpp) says whether the slope is a
/// function of the element or of the result.
template <class Tag, class Function> struct Mapped {
  static constexpr std::string_view name = Tag::name;
  static constexpr bool gradient_reads_input = !Function::slope_of_result;
  static constexpr bool gradient_reads_output = Function::slope_of_result;

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, X&& x) const {
    using Input = std::remove_cvref_t<X>;
    using L = ElementwiseFunctionLayout<Tag, typename Input::layout>;
    if constexpr (detail::any_invalid<L> || !detail::RealOperand<Tag, typename Input::value_type>::value) {
      return detail::ResultTensor<L, Input>(x.resources(), {});
    } else {
      auto [from, out] = detail::reuse(std::forward<X>(x), where);
      detail::map_elements_of<Function>(from, out);
      return std::move(out);
    }
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(G&& y_gradient, const X& x, const Y& y) const {
    using Element = typename X::value_type;
    auto [from, out] = detail::reuse(std::forward<G>(y_gradient));
    const Element* const at = Function::slope_of_result ? y.data() : x.data();
    if (out.local_size() > 0)
      kernels::detail::run_elementwise<Element>(
          "sw::d_map", out.execution(), out.local_size(),
          kernels::detail::ActivationBackward<Element, Function>{at, from, out.mutable_data()});
    return std::move(out);
  }
};

/// @brief The function of that name, with its gradient.
using GeluTanh = Mapped<gelu_tanh, kernels::detail::GeluTanh>;
using GeluErf = Mapped<gelu_erf, kernels::detail::GeluErf>;
using Silu = Mapped<silu, kernels::detail::Silu>;
using Relu = Mapped<relu, kernels::detail::Relu>;
using Sigmoid = Mapped<sigmoid, kernels::detail::Sigmoid>;
using Tanh = Mapped<tanh, kernels::detail::Tanh>;
using Exp = Mapped<exp, kernels::detail::Exp>;
using Log = Mapped<log, kernels::detail::Log>;
using Sqrt = Mapped<sqrt, kernels::detail::Sqrt>;
using Square = Mapped<square, kernels::detail::Square>;

} // namespace operation

/// @name Nonlinear elementwise functions The operand must not be Partial. Real elements; no communication;
/// cost: one pass over memory. `name_into(out, x)` writes to an existing tensor, which may be `x`. On a tape
/// the result reuses the memory of an operand without other readers, and so does the gradient.
/// @{

/// @brief GELU in its tanh form, x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks and
/// Gimpel, arXiv 1606.08415, section 2): that of GPT-2, and of PyTorch with approximate="tanh"; within 1e-3
/// of gelu_erf.
template <Operand X> [[nodiscard]] auto gelu_tanh(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::GeluTanh{}, where, std::forward<X>(x));
}
template <AnyShardedTensor Out, AnyShardedTensor X>
void gelu_tanh_into(Out& out, const X& x, SourceLocation where = SourceLocation::current()) {
  detail::mapped_into<operation::gelu_tanh, kernels::detail::GeluTanh>(out, x, where);
}

/// @brief GELU as defined, x (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel, arXiv 1606.08415, section 2):
/// that of BERT, and of PyTorch by default. Within 8 units in the last place; the error function by Shepherd
/// and Laframboise (kernels/lanes/math.hpp).
template <Operand X> [[nodiscard]] auto gelu_erf(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::GeluErf{}, where, std::forward<X>(x));
}
template <AnyShardedTensor Out, AnyShardedTensor X>
void gelu_erf_into(Out& out, const X& x, SourceLocation where = SourceLocation::current()) {
  detail::mapped_into<operation::gelu_erf, kernels::detail::GeluErf>(out, x, where);
}

/// @brief x sigmoid(x) (Elfwing et al., arXiv 1702.03118, section 2.1).
template <Operand X> [[nodiscard]] auto silu(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Silu{}, where, std::forward<X>(x));
}
template <AnyShardedTensor Out, AnyShardedTensor X>
void silu_into(Out& out, const X& x, SourceLocation where = SourceLocation::current()) {
  detail::mapped_into<operation::silu, kernels::detail::Silu>(out, x, where);
}

/// @brief max(x, 0); a NaN stays. The gradient at 0 is 0.
template <Operand X> [[nodiscard]] auto relu(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Relu{}, where, std::forward<X>(x));
}
template <AnyShardedTensor Out, AnyShardedTensor X>
void relu_into(Out& out, const X& x, SourceLocation where = SourceLocation::current()) {
  detail::mapped_into<operation::relu, kernels::detail::Relu>(out, x, where);
}

/// @brief 1 / (1 + exp(-x)).
template <Operand X> [[nodiscard]] auto sigmoid(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Sigmoid{}, where, std::forward<X>(x));
}
template <AnyShardedTensor Out, AnyShardedTensor X>
void sigmoid_into(Out& out, const X& x, SourceLocation where = SourceLocation::current()) {
  detail::mapped_into<operation::sigmoid, kernels::detail::Sigmoid>(out, x, where);
}

/// @brief The hyperbolic tangent.
template <Operand X> [[nodiscard]] auto tanh(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Tanh{}, where, std::forward<X>(x));
}
template <AnyShardedTensor Out, AnyShardedTensor X>
void tanh_into(Out& out, const X& x, SourceLocation where = SourceLocation::current()) {
  detail::mapped_into<operation::tanh, kernels::detail::Tanh>(out, x, where);
}

/// @brief exp(x).
template <Operand X> [[nodiscard]] auto exp(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Exp{}, where, std::forward<X>(x));
}
template <AnyShardedTensor Out, AnyShardedTensor X>
void exp_into(Out& out, const X& x, SourceLocation where = SourceLocation::current()) {
  detail::mapped_into<operation::exp, kernels::detail::Exp>(out, x, where);
}

/// @brief The natural logarithm: -infinity of 0, NaN of a negative number.
template <Operand X> [[nodiscard]] auto log(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Log{}, where, std::forward<X>(x));
}
template <AnyShardedTensor Out, AnyShardedTensor X>
void log_into(Out& out, const X& x, SourceLocation where = SourceLocation::current()) {
  detail::mapped_into<operation::log, kernels::detail::Log>(out, x, where);
}

/// @brief The square root. Its gradient at 0 is infinite.
template <Operand X> [[nodiscard]] auto sqrt(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Sqrt{}, where, std::forward<X>(x));
}
template <AnyShardedTensor Out, AnyShardedTensor X>
void sqrt_into(Out& out, const X& x, SourceLocation where = SourceLocation::current()) {
  detail::mapped_into<operation::sqrt, kernels::detail::Sqrt>(out, x, where);
}

/// @brief x^2.
template <Operand X> [[nodiscard]] auto square(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Square{}, where, std::forward<X>(x));
}
template <AnyShardedTensor Out, AnyShardedTensor X>
void square_into(Out& out, const X& x, SourceLocation where = SourceLocation::current()) {
  detail::mapped_into<operation::square, kernels::detail::Square>(out, x, where);
}
/// @}

} // namespace shardwright::inline SHARDWRIGHT_ABI
