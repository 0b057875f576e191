// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Powers of elements, and choices between them: limits, the greater of two, and by a mask.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/elementwise/binary.hpp>
#include <shardwright/tensor/elementwise/function.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace operation {

/// @brief x, but not below or above two numbers; a NaN stays.
struct Clamp {
  static constexpr std::string_view name = "clamp";
  static constexpr bool slope_of_result = false;
  double low;
  double high;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const {
    return chosen(x < V(low), V(low), chosen(x > V(high), V(high), x));
  }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V x) const {
    return chosen(x < V(low), V(0), chosen(x > V(high), V(0), V(1)));
  }
  [[nodiscard]] std::array<GivenNumber, 2> numbers() const {
    return {GivenNumber("lower limit", low), GivenNumber("upper limit", high)};
  }
};

/// @brief x to the power of a number: by products for whole ones up to 64, else exp(exponent log(x)).
struct Power {
  static constexpr std::string_view name = "pow";
  static constexpr bool slope_of_result = false;
  double exponent;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return power(x, exponent); }
  template <class V> SHARDWRIGHT_FUNCTION V slope(V x) const {
    return exponent == 0 ? V(0) : V(exponent) * power(x, exponent - 1);
  }
  [[nodiscard]] std::array<GivenNumber, 1> numbers() const { return {GivenNumber("exponent", exponent)}; }

private:
  template <class V> SHARDWRIGHT_FUNCTION static V power(V x, double to) {
    const double size = to < 0 ? -to : to;
    if (!(size <= 64) || size != static_cast<double>(static_cast<int>(size)))
      return exp(V(to) * log(x));
    V out(1), square = x;
    for (int left = static_cast<int>(size); left > 0; left /= 2) {
      if (left % 2 != 0)
        out = out * square;
      square = square * square;
    }
    return to < 0 ? V(1) / out : out;
  }
};

/// @brief The greater of two, the left one of equals; a NaN in either stays.
struct Maximum {
  static constexpr std::string_view name = "maximum";
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V left, V right) const {
    return chosen(left >= right, left, chosen(left < right, right, left + right));
  }
  template <class V> SHARDWRIGHT_FUNCTION V left_gradient(V dy, V left, V right) const {
    return chosen(left >= right, dy, V(0));
  }
  template <class V> SHARDWRIGHT_FUNCTION V right_gradient(V dy, V left, V right) const {
    return chosen(left >= right, V(0), dy);
  }
};

} // namespace operation

namespace kernels {

/// @brief out = mask != 0 ? left : right; null stands for zeros. `out` may be one of them.
template <class Element> struct ChooseByMask {
  const std::int32_t* mask;
  const Element* left;
  const Element* right;
  Element* out;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const Element* const from = mask[i] != 0 ? left : right;
    out[i] = from == nullptr ? Element(0) : from[i];
  }
};

} // namespace kernels

namespace detail {

/// The trace shows the layouts.
template <class Mask, class X, class Y> struct ChosenByMask {
  static constexpr bool known = any_invalid<typename X::layout, typename Y::layout>;
  static constexpr bool alike =
      known || (std::is_same_v<typename X::layout, typename Y::layout> &&
                std::is_same_v<typename Mask::layout, Gradient<typename X::layout>>);
  static_assert(
      alike,
      "where: both operands must have one layout, and the mask must have it, too, but replicated where they are Partial (redistribute one of them)");
  static constexpr bool counts = std::is_same_v<std::remove_const_t<typename Mask::value_type>, std::int32_t>;
  static_assert(counts, "where: the mask must be int32 (convert it first)");
  static constexpr bool value = alike && counts && !known && SameElementAndTarget<X, Y>::value;
};

/// Whether an operand is on a tape that compares its data between ranks.
template <class X> [[nodiscard]] bool tape_checks_inputs(const X& x) {
  if constexpr (requires { x.tape(); })
    return x.tape().checks_inputs();
  else
    return false;
}

} // namespace detail

namespace operation {

/// @brief Elements of the left or the right operand, by a mask that has no gradient. Linear in both together.
template <class Mask> struct Where {
  static constexpr std::string_view name = "where";
  static constexpr GradientReads left_gradient_reads{};
  static constexpr GradientReads right_gradient_reads{};
  Mask mask;

  template <AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto forward(SourceLocation where, const X& x, const Y& y) const {
    using L = ElementwiseLinearLayout<typename X::layout>;
    using Result = detail::ResultTensor<L, X>;
    if constexpr (!detail::ChosenByMask<Mask, X, Y>::value || detail::any_invalid<L>) {
      return Result(x.resources(), {}, where);
    } else {
      detail::require_one_mesh("where", x, y, where);
      detail::require_one_mesh("where", x, mask, where);
      detail::require_shape("where", "right operand", y.shape(), x.shape(), x.core(), where);
      detail::require_shape("where", "mask", mask.shape(), x.shape(), x.core(), where);
      Result out(x.resources(), x.shape(), where);
      choose(x.data(), y.data(), out);
      return out;
    }
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto left_gradient(const G& y_gradient, const X&, const Y&) const {
    detail::ResultTensor<typename G::layout, G> out(y_gradient.resources(), y_gradient.shape());
    choose(y_gradient.data(), nullptr, out);
    return out;
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto right_gradient(const G& y_gradient, const X&, const Y&) const {
    detail::ResultTensor<typename G::layout, G> out(y_gradient.resources(), y_gradient.shape());
    choose(nullptr, y_gradient.data(), out);
    return out;
  }

private:
  template <class Out>
  void choose(const typename Out::value_type* left, const typename Out::value_type* right, Out& out) const {
    kernels::run(
        "sw::where", out.execution(), out.local_size(),
        kernels::ChooseByMask<typename Out::value_type>{mask.data(), left, right, out.mutable_data()});
  }
};

} // namespace operation

/// @brief x, but `low` where it is below, and `high` where it is above; a NaN stays. The gradient is zero
/// there.
/// @throws InvalidArgument if `low` is not at most `high`.
template <Operand X>
[[nodiscard]] auto clamp(X&& x, double low, double high, SourceLocation where = SourceLocation::current()) {
  if (!(low <= high))
    throw InvalidArgument("clamp: the lower limit must be at most the upper one, but they are " +
                              std::to_string(low) + " and " + std::to_string(high) + " (swap them)",
                          {.where = where});
  return Elementwise<operation::Clamp>{{low, high}}(std::forward<X>(x), where);
}

/// @brief x to the power of a number: by products if that is whole and at most 64, with a relative error
/// below 64 units in the last place, and else exp(exponent log(x)), which is NaN for a negative x.
template <Operand X>
[[nodiscard]] auto pow(X&& x, double exponent, SourceLocation where = SourceLocation::current()) {
  return Elementwise<operation::Power>{{exponent}}(std::forward<X>(x), where);
}

/// @brief The greater of two elements, with the gradient to it, and to the left one of equals. Neither
/// operand may be Partial.
inline constexpr Binary<operation::Maximum> maximum{};

/// @brief x where the mask is not zero, else y; the mask has no gradient. x and y may be sums that are not
/// complete, both over the same axes. A tape that checks its inputs compares the mask between ranks.
/// @param mask int32, of the shape and layout of x and y, replicated where they are Partial
/// @throws InvalidArgument if the shapes differ.
template <AnyShardedTensor Mask, Operand X, Operand Y>
[[nodiscard]] auto where(const Mask& mask, X&& x, Y&& y, SourceLocation line = SourceLocation::current()) {
  if (detail::tape_checks_inputs(x) || detail::tape_checks_inputs(y))
    require_equal_inputs(mask, line);
  return apply(operation::Where<decltype(mask.share())>{mask.share()}, line, std::forward<X>(x),
               std::forward<Y>(y));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
