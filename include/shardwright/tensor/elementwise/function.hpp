// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Elementwise functions with their gradients, each made from a formula and its slope.

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/lanes/value.hpp>
#include <shardwright/tensor/kernels/terms.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The gradient of a linear function, which needs neither x nor the result, as a function of three operands.
template <class Function> struct LinearGradientOf {
  [[no_unique_address]] Function function;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V dy, Unread, Unread) const {
    return function.gradient(dy);
  }
};

/// How the gradient of a function is computed; the trace shows the function.
template <class Function> struct GradientReadsOf {
  using V = kernels::Value<double>;
  static constexpr bool is_linear = requires(const Function& function, V dy) {
    { function.gradient(dy) } -> std::convertible_to<V>;
  };
  static constexpr bool value = requires(const Function& function, V x) {
    { function(x) } -> std::convertible_to<V>;
    requires is_linear || requires {
      { function.slope(x) } -> std::convertible_to<V>;
    };
  };
  static_assert(
      value,
      "elementwise function: it must have a formula operator()(x) and a slope(x), or gradient(dy) if that is linear, which return the type of their argument (write them as templates of that type)");
  static constexpr bool is_unchanged = [] {
    if constexpr (is_linear)
      return std::is_same_v<decltype(std::declval<const Function&>().gradient(std::declval<V>())),
                            Unchanged<V>>;
    return false;
  }();
  static constexpr bool of_result = [] {
    if constexpr (!is_linear)
      return bool(Function::slope_of_result);
    return false;
  }();
};

/// The layout of a function's result: the function's own, or that of a nonlinear function.
template <class Function, class Input> struct FunctionLayout {
  using type = ElementwiseFunctionLayout<Function, Input>;
};
template <class Function, class Input>
requires requires { typename Function::template layout<Input>; }
struct FunctionLayout<Function, Input> {
  using type = typename Function::template layout<Input>;
};

} // namespace detail

/// @brief An elementwise function made from its formula: `f(x)` of a tensor or a value on a tape, and
/// `f.into(out, x)`. A program declares one object of it:
/// `inline constexpr sw::Elementwise<Softplus> softplus{};`.
///
/// `Function` has a `name`, a literal; a formula `operator()(x)` and `slope(at)`, templates of the type of
/// their argument (kernels::Value), for devices marked SHARDWRIGHT_FUNCTION; and a constant
/// `slope_of_result`: whether `at` is the result, or x. A linear function has `gradient(dy)` in place of a
/// slope, which returns Unchanged if it is dy. An alias `layout<Input>` gives the layout of the result:
/// without it x must be complete. Real elements; of integers, too, with `takes_integers`; halos pass. The
/// function may hold numbers, which must be the same on all ranks; those that its `numbers()` returns are
/// compared in checked builds. No communication; cost: one pass over memory. On a tape the result reuses the
/// memory of an operand without other readers, and so does the gradient.
template <class Function> struct Elementwise {
  using Slope = detail::GradientReadsOf<Function>;
  static_assert(sizeof(Slope) > 0);
  static constexpr std::string_view name = Function::name;
  static constexpr bool gradient_reads_input = !Slope::is_linear && !Slope::of_result;
  static constexpr bool gradient_reads_output = Slope::of_result;
  [[no_unique_address]] Function function;

  template <Operand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) const {
    return apply(*this, where, std::forward<X>(x));
  }
  /// @brief Writes to an existing tensor, which may be `x`.
  /// @throws InvalidArgument if the shapes differ or the tensors are on two meshes.
  template <AnyShardedTensor Out, AnyShardedTensor X>
  void into(Out& out, const X& x, SourceLocation where = SourceLocation::current()) const {
    if constexpr (takes<X>) {
      if constexpr (detail::DestinationOf<Result<X>, Out>::value) {
        detail::require_one_mesh(name.data(), x, out, where);
        detail::require_shape(name.data(), "destination", out.shape(), x.shape(), x.core(), where);
        run(kernels::MapOf<Function>{function}, kernels::NoElements{}, elements(x.data()), out);
      }
    }
  }
  /// @brief The same in another formula.
  template <class Number, std::size_t count>
  [[nodiscard]] SHARDWRIGHT_FUNCTION auto operator()(kernels::Value<Number, count> x) const {
    return function(x);
  }

  /// @brief The forward pass, for apply().
  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, X&& x) const {
    using Input = std::remove_cvref_t<X>;
    if constexpr (!takes<Input>) {
      return Result<Input>(x.resources(), {});
    } else {
      auto [from, out] = reuse(std::forward<X>(x), where);
      run(kernels::MapOf<Function>{function}, kernels::NoElements{}, elements(from), out);
      return std::move(out);
    }
  }
  /// @brief The gradient, for apply(): that of the result times the slope.
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(G&& y_gradient, const X& x, const Y& y) const {
    if constexpr (Slope::is_unchanged) {
      return std::remove_cvref_t<G>(std::forward<G>(y_gradient));
    } else {
      auto [from, out] = reuse(std::forward<G>(y_gradient));
      if constexpr (Slope::is_linear)
        run(detail::LinearGradientOf<Function>{function}, elements(from), kernels::NoElements{}, out);
      else
        run(kernels::SlopeOf<Function>{function}, elements(from),
            elements(Slope::of_result ? y.data() : x.data()), out);
      return std::move(out);
    }
  }
  [[nodiscard]] auto numbers() const requires requires(const Function& of) { of.numbers(); }
  { return function.numbers(); }

private:
  template <class X>
  using Result = detail::ResultTensor<typename detail::FunctionLayout<Function, typename X::layout>::type, X>;
  /// Checks the operand.
  template <class X>
  static constexpr bool takes =
      !detail::any_invalid<typename Result<X>::layout> && detail::RoundedOnce<Result<X>>::value &&
      detail::RealOperand<Function, typename X::value_type>::value;
  template <class Element> [[nodiscard]] static kernels::Elements<Element> elements(const Element* data) {
    return {data};
  }
  template <class Formula, class Dy, class X, class Out>
  static void run(const Formula& formula, const Dy& dy, const X& x, Out& out) {
    kernels::store_formula(name.data(), out.execution(), formula, dy, x, kernels::NoElements{},
                           out.mutable_data(), out.local_size());
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
